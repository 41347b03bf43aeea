"""The tables of older designs: state table and redo log (3.0, 3.1), and the database table t_transaction (3.2 to 4.2)."""
