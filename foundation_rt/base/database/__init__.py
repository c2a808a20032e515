"""Databases for applications: transactions, and tables that are migrated (spec/database.md).

    errors       whether a failed transaction happened, and what would help
    postgres     a few connections to PostgreSQL; needs the extra `postgres`
    sqlite       the thread that owns the connection to a SQLite file
    migrations   numbered migrations, for both

SQL is written by hand. These modules give what is hard to get right around it: a transaction that
failed is repeated as long as that is safe, its error says whether it happened, every wait is
bounded, and any number of processes may start on one database. AACP's durable ledgers and the task
server are built on them. They are public: import names from the modules.
"""
