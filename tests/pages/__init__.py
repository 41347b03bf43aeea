"""The pages that `make man` writes: those of man/, and lists and drawings of docs/, from commands and declarations."""
