"""A SQLite file for applications: durable, on one machine, without a server.

    def work(connection):
        [stock] = connection.execute("SELECT n FROM stock").fetchone()
        connection.execute("UPDATE stock SET n = ?", (stock - 1,))

    database = SqliteDatabase("app.db", private=True, prepare=make_tables)
    await database.open()
    await database.write(work)

    database   the public class
    committer  the thread that owns the connection, and commits waiting operations together
    files      how a file is opened: its journal, its modes; what its errors mean
    presence   whether other processes have the file open

Works from the plain install.
"""

from .database import SqliteDatabase as SqliteDatabase
from .files import WAL_VERSION as WAL_VERSION
