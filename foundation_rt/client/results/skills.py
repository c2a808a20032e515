"""Skills as a server lists them, and their files, which are checked against that (SEP-2640).

An entry says what belongs to a skill, with a digest and a size for each file. What is read is that,
or it is refused. A digest says that the server is consistent, not that it can be trusted.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from attrs import field, frozen

from ...base.jsonschema.equality import identity
from ...base.skill_format import (
    DYNAMIC,
    MANIFEST,
    MAX_BYTES,
    MAX_FILES,
    check_front_matter,
    digest_of,
    is_digest,
    read_front_matter,
    root_of,
)
from ...protocol.content import BlobContents, TextContents
from ..errors import InvalidResponseError, MCPError

ResourceContents = TextContents | BlobContents


@frozen
class SkillFile:
    """A file of a skill, as its entry has it.

    Attributes:
        uri: as `Client.read_resource` takes it.
        digest: `sha256:` and the digest of its bytes.
        size: in bytes.
    """

    uri: str
    digest: str
    size: int


@frozen
class Skill:
    """A skill that a server offers.

    Attributes:
        uri: of its `SKILL.md`. It identifies the skill within the server, and a name does not.
        name: a label; two skills may have the same.
        description: what it is for, as its author says. It is untrusted text, as is all of a skill.
        files: of the skill, `SKILL.md` among them; None where the content is made when it is read
            and has no digests.
        front_matter: of `SKILL.md`, as JSON; nothing in it grants anything.
        wire: the entry as it came.
    """

    uri: str
    name: str
    description: str
    files: tuple[SkillFile, ...] | None
    front_matter: Mapping[str, Any] = field(repr=False)
    wire: Mapping[str, Any] = field(repr=False, eq=False)

    @classmethod
    def read(cls, wire: Any) -> Skill:
        """Return an entry of `skills/list` or `skills/get` (CSKILL-02).

        Raises:
            InvalidResponseError: it is none, or larger than a skill may be.
        """
        uri = wire.get("uri") if type(wire) is dict else None
        if type(uri) is not str:
            raise InvalidResponseError("a skill is listed without a uri")
        try:
            front_matter = check_front_matter(wire.get("frontmatter"))
            root = root_of(uri)
            if posixpath.basename(root) != front_matter["name"]:
                raise ValueError(f"its name is {front_matter['name']!r}, other than in its URI")
            files = _read_files(wire.get("resources"), uri, root)
        except ValueError as error:
            raise InvalidResponseError(f"the skill {uri!r:.200} cannot be used: {error}") from None
        return cls(
            uri, front_matter["name"], front_matter["description"], files, front_matter, wire
        )

    def file(self, path: str) -> SkillFile:
        """Return a file by its path from the folder of the skill, as `references/forms.md`.

        Raises:
            MCPError: E204: the skill has none of this name, or no list of its files; nothing was
                sent.
        """
        if self.files is None:
            raise self._refusal("has no digests: read it by read_resource, unchecked")
        root = root_of(self.uri)
        wanted = posixpath.normpath(path)
        for each in self.files:
            if unquote(each.uri.removeprefix(f"{root}/")) == wanted:
                return each
        raise self._refusal(f"has no file {path!r:.200}")

    def checked(self, file: SkillFile, contents: Sequence[ResourceContents]) -> bytes:
        """Return the content of a file of the skill that was read (CSKILL-04).

        Raises:
            InvalidResponseError: it is not what the entry says.
            MissingExtraError: it is `SKILL.md`, and the extra `skills` is not installed.
        """
        if len(contents) != 1:
            raise _mismatch(file.uri, f"it came in {len(contents)} parts")
        [only] = contents
        content = only.text.encode() if isinstance(only, TextContents) else only.blob
        if len(content) != file.size:
            raise _mismatch(file.uri, f"it has {len(content)} bytes instead of {file.size}")
        if digest_of(content) != file.digest:
            raise _mismatch(file.uri, "its digest is another one")
        if file.uri == self.uri:
            try:
                written = read_front_matter(content)
            except ValueError as error:
                raise _mismatch(file.uri, str(error)) from None
            if identity(written) != identity(self.front_matter):
                raise _mismatch(file.uri, "its front matter is another one")
        return content

    def _refusal(self, problem: str) -> MCPError:
        message = f"the skill {self.uri!r:.200} {problem}"
        return MCPError("E204", message, user_message=message, suggested_action="Ask for it anew.")


def choose_skill(skills: Sequence[Skill], name: str) -> Skill:
    """Return the skill of a name (CSKILL-03).

    Raises:
        MCPError: E204: there is none, or there are several.
    """
    found = [each for each in skills if each.name == name]
    if len(found) == 1:
        return found[0]
    problem = f"no skill is listed as {name!r:.100}"
    if found:
        uris = ", ".join(each.uri for each in found)
        problem = f"several skills have the name {name!r:.100}: ask for one by its URI: {uris:.500}"
    raise MCPError("E204", problem)


def _read_files(listed: Any, uri: str, root: str) -> tuple[SkillFile, ...] | None:
    """Return the files of an entry.

    Raises:
        ValueError: they are not what an entry has.
    """
    if listed == DYNAMIC:
        return None
    if type(listed) is not list:
        raise ValueError(f"its resources are neither an array nor {DYNAMIC!r}")
    if len(listed) > MAX_FILES:
        raise ValueError(f"it has {len(listed):,} files, more than {MAX_FILES}")
    files: dict[str, SkillFile] = {}
    for each in listed:
        wire = each if type(each) is dict else {}
        file, digest, size = wire.get("uri"), wire.get("digest"), wire.get("size")
        if type(file) is not str or type(size) is not int or size < 0 or not is_digest(digest):
            raise ValueError("a file of it has no uri, digest and size")
        if not file.startswith(f"{root}/") or ".." in unquote(file).split("/"):
            raise ValueError(f"{file!r:.200} is not in its folder")
        if file in files:
            raise ValueError(f"{file!r:.200} is listed twice")
        files[file] = SkillFile(file, digest, size)
    if uri not in files:
        raise ValueError(f"its {MANIFEST} is not among its files")
    total = sum(each.size for each in files.values())
    if total > MAX_BYTES:
        raise ValueError(f"its files have {total:,} bytes, more than {MAX_BYTES >> 20} MiB")
    return tuple(files.values())


def _mismatch(uri: str, problem: str) -> InvalidResponseError:
    message = f"{uri!r:.200} is not what the entry of its skill says: {problem}"
    return InvalidResponseError(message, may_have_run=False)
