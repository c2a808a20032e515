"""The process that `Colours` asks: a line of JSON in, `[language, code]`, and one out.

It is run by its path, and imports nothing of the package: it is there in a tenth of a second.
"""

import json
import sys
from collections.abc import Iterable

MAX_SPANS = 5_000
_MEMORY = 512 * 1024 * 1024

_CLASSES = (
    ("Comment", "comment"),
    ("Keyword", "keyword"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Name.Function", "name"),
    ("Name.Class", "name"),
    ("Name.Decorator", "name"),
    ("Name.Builtin", "name"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "name"),
    ("Operator.Word", "keyword"),
    ("Generic.Inserted", "string"),
    ("Generic.Deleted", "deleted"),
    ("Generic.Heading", "keyword"),
    ("Generic.Subheading", "keyword"),
)


def main() -> None:
    """Answer until the input ends."""
    if sys.platform != "win32":  # there nothing bounds it, and its host ends it after a time
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    _answer(None)
    for line in sys.stdin.buffer:  # its text would be in the code page on Windows
        language, code = json.loads(line)
        try:
            lexer = get_lexer_by_name(language)
        except ClassNotFound:
            _answer(None)
        else:
            _answer(_spans(lexer.get_tokens_unprocessed(code)))


def _spans(tokens: Iterable[tuple[int, object, str]]) -> list[tuple[int, str]] | None:
    """Return `[length, class]` of each piece; None: there are too many. Lengths are of UTF-16."""
    spans: list[tuple[int, str]] = []
    for _, kind, value in tokens:
        name, length = _class(str(kind)), len(value.encode("utf-16-le", "surrogatepass")) // 2
        if spans and spans[-1][1] == name:
            spans[-1] = (spans[-1][0] + length, name)
        elif length:
            spans.append((length, name))
        if len(spans) > MAX_SPANS:
            return None
    return spans


def _class(kind: str) -> str:
    """Return the colour of a token such as `Token.Name.Function`; "" is that of the text."""
    kind = kind.removeprefix("Token.")
    return next((colour for start, colour in _CLASSES if f"{kind}.".startswith(f"{start}.")), "")


def _answer(spans: object) -> None:
    sys.stdout.write(json.dumps(spans) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
