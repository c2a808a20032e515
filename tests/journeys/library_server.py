"""A library's desk, for FastMCP 4: loans of books, their readers, and a catalogue that is mounted.

What the journey of a user of FastMCP begins with: pydantic models, a lifespan, middleware, a login
and a mounted server, as people write them there.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.middleware import Middleware, MiddlewareContext
from pydantic import BaseModel, Field

logger = logging.getLogger("library")


class Book(BaseModel):
    """A book of the library."""

    isbn: str = Field(pattern=r"^\d{13}$", description="Thirteen digits.")
    title: str = Field(min_length=1)
    year: int = Field(ge=1450, le=2100)
    language: Literal["de", "en", "no"] = "en"


class Loan(BaseModel):
    """A book that somebody has."""

    isbn: str
    reader: str
    due: date
    renewals: int = 0


class Shelf(BaseModel):
    """Books of one language."""

    language: str
    books: list[Book]


@dataclass
class Library:
    """What the server keeps while it runs."""

    books: dict[str, Book] = field(default_factory=dict)
    loans: dict[str, Loan] = field(default_factory=dict)
    opened: datetime = field(default_factory=lambda: datetime.now(UTC))


FIRST = [
    Book(isbn="9780141439518", title="Pride and Prejudice", year=1813),
    Book(isbn="9783150000014", title="Faust", year=1808, language="de"),
    Book(isbn="9788203364181", title="Sult", year=1890, language="no"),
]


@asynccontextmanager
async def lifespan(server: FastMCP) -> AsyncIterator[Library]:
    """Open the library, and say so."""
    library = Library(books={book.isbn: book for book in FIRST})
    logger.info("open with %d books", len(library.books))
    try:
        yield library
    finally:
        logger.info("closed with %d loans", len(library.loans))


class Timing(Middleware):
    """Log how long each tool takes."""

    async def on_call_tool(self, context: MiddlewareContext, call_next):
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            return await call_next(context)
        finally:
            logger.info("%s took %.3f s", context.message.name, loop.time() - begun)


class OpeningHours(Middleware):
    """Refuse what changes anything while the library is closed."""

    def __init__(self, closed: set[str]):
        self.closed = closed

    async def on_call_tool(self, context: MiddlewareContext, call_next):
        if context.message.name in self.closed:
            raise ToolError(f"{context.message.name}: the library is closed")
        return await call_next(context)


verifier = StaticTokenVerifier(
    tokens={os.environ.get("DESK_TOKEN", "desk-token"): {"client_id": "desk", "scopes": ["read"]}},
    required_scopes=["read"],
)

catalogue = FastMCP("catalogue")


@catalogue.tool(annotations={"readOnlyHint": True})
def find(words: str, language: Literal["de", "en", "no"] | None = None) -> list[Book]:
    """Find books by words of their titles."""
    return [
        book
        for book in FIRST
        if words.lower() in book.title.lower() and language in (None, book.language)
    ]


@catalogue.resource("catalogue://{language}")
def shelf(language: str) -> str:
    """All books of one language."""
    books = [book for book in FIRST if book.language == language]
    return Shelf(language=language, books=books).model_dump_json()


mcp = FastMCP(
    "library",
    instructions="Lend books. Ask before you take one back.",
    lifespan=lifespan,
    auth=verifier,
)
mcp.add_middleware(Timing())
mcp.add_middleware(OpeningHours(closed={"sell"}))
mcp.mount(catalogue, namespace="catalogue")


@mcp.tool(tags={"loans"})
async def lend(
    isbn: Annotated[str, Field(description="Of the book.", pattern=r"^\d{13}$")],
    reader: Annotated[str, Field(min_length=2)],
    ctx: Context,
    weeks: Annotated[int, Field(ge=1, le=8)] = 4,
) -> Loan:
    """Lend a book."""
    library: Library = ctx.request_context.lifespan_context
    if isbn not in library.books:
        raise ToolError(f"there is no book {isbn}")
    if isbn in library.loans:
        raise ToolError(f"{library.loans[isbn].reader} has it")
    loan = Loan(isbn=isbn, reader=reader, due=date(2026, 1, 1) + timedelta(weeks=weeks))
    library.loans[isbn] = loan
    await ctx.info(f"{reader} takes {library.books[isbn].title}")
    return loan


@mcp.tool(tags={"loans"}, timeout=5)
async def take_back(isbn: str, ctx: Context) -> str:
    """Take a book back."""
    library: Library = ctx.request_context.lifespan_context
    loan = library.loans.pop(isbn, None)
    if loan is None:
        raise ToolError("nobody has it")
    await ctx.report_progress(1, 1)
    return f"{loan.reader} has brought it back"


@mcp.tool
def add(book: Book, ctx: Context) -> int:
    """Add a book; return how many there are."""
    library: Library = ctx.request_context.lifespan_context
    library.books[book.isbn] = book
    return len(library.books)


@mcp.tool
def sell(isbn: str) -> str:
    """Sell a book."""
    return isbn


@mcp.resource("library://loans")
async def loans(ctx: Context) -> str:
    """Who has which book."""
    library: Library = ctx.request_context.lifespan_context
    return "\n".join(f"{loan.reader}: {loan.isbn}" for loan in library.loans.values())


@mcp.prompt
def reminder(reader: str, title: str) -> str:
    """Write to a reader who is late."""
    return f"Write two friendly sentences to {reader}, who should bring back {title}."


if __name__ == "__main__":
    mcp.run(transport="http", host="127.0.0.1", port=8000)
