"""The commands as declared: options, help, examples. Help and completion import only these, so they load no Arrow."""
