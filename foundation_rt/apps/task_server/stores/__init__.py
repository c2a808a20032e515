"""The stores of the task server: one for each kind of database."""
