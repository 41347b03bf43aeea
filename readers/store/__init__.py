"""The files below a store's root, and the settings of its broker.

Other folders begin with `store.open_store` and `broker_settings`; `paths` lists every file that a broker keeps.
"""
