"""The tables of older designs: state table and redo log (3.0, 3.1), and t_transaction of a database (3.2 to 4.2)."""
