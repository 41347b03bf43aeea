"""What is under a store's root, and the settings that its broker ran with.

Other folders begin with `store.open_store` and `broker_settings`; `paths` lists every file that a broker keeps.
"""
