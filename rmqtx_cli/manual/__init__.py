"""The manual pages, made from the tree of commands and the declarations."""
