"""The skills of a server, and their files, which are resources."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from attrs import define, evolve

from ...base.skill_format import MANIFEST, digest_of
from ...errors import ErrorCode, ToolError
from ...kernel.registry.catalog import ChangeNotifier, Registry
from ...kernel.registry.tools import ExecutionMode
from ...protocol.content import BlobContents, TextContents
from ..definitions import FeatureEntry
from ..resources.registry import ResourceDefinition, ResourceTemplateDefinition
from ..resources.results import as_asked
from ..resources.uri_template import InvalidUri, check_uri, normalize_uri, parse_template
from .folder import SkillFolder, find_skills, read_skill, refusal

if TYPE_CHECKING:
    from typing import Unpack

    from ...protocol.content import ResourceContents
    from ...protocol.revisions import Revision
    from ..context import ToolContext
    from ..handler_calls import HandlerSpec
    from ..options import ResourceHandlerOptions
    from ..resources.registry import ResourceRegistry

DIRECTORY_TYPE: Final = "inode/directory"
_SEGMENT: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_FILE: Final = "file"
_TYPES: Final = {".md": "text/markdown", ".yaml": "application/yaml", ".yml": "application/yaml"}
"""Of files whose type not every Python knows."""


@define(eq=False, repr=False)
class RegisteredSkill(FeatureEntry):
    """A skill as a server offers it.

    Attributes:
        uri: of its `SKILL.md`.
        front_matter: of that file, as JSON.
        files: the entry of each file: `uri`, `digest` and `size`.
        directories: of each folder, by URI, its children as resources, by URI.
    """

    uri: str
    front_matter: dict[str, Any]
    files: list[dict[str, Any]]
    directories: dict[str, dict[str, dict[str, Any]]]
    handler_spec: HandlerSpec

    @property
    def names(self) -> tuple[str]:
        """The name by which it can be switched off and on."""
        return (self.uri,)

    def wire(self, revision: Revision | None = None) -> dict[str, Any]:
        """Return the entry of the skill, which is the same in every revision."""
        return {"uri": self.uri, "frontmatter": self.front_matter, "resources": self.files}

    def moved(self, move: Callable[[str], str]) -> RegisteredSkill:
        """Return the skill with other URIs."""
        return evolve(
            self,
            uri=move(self.uri),
            files=[{**each, "uri": move(each["uri"])} for each in self.files],
            directories={
                move(directory): {
                    move(uri): {**child, "uri": move(uri)} for uri, child in children.items()
                }
                for directory, children in self.directories.items()
            },
        )


class SkillRegistry(Registry[RegisteredSkill]):
    """The skills of a server, by the URI of their `SKILL.md`."""

    def __init__(self, notifier: ChangeNotifier, resources: ResourceRegistry) -> None:
        super().__init__(notifier)
        self.resources = resources

    def add_from(
        self,
        folder: str | os.PathLike[str],
        *,
        prefix: str = "",
        **options: Unpack[ResourceHandlerOptions],
    ) -> tuple[str, ...]:
        """Add every skill below a folder; return their URIs; see `Server.skills_from`."""
        root = Path(folder)
        added: list[str] = []
        try:
            for parts in find_skills(root):
                path = "/".join((*_segments(root, prefix), *parts[:-1]))
                added.append(self.add(root.joinpath(*parts), prefix=path, **options))
        except BaseException:
            for uri in added:
                self.unregister(uri)
            raise
        return tuple(added)

    def add(
        self,
        folder: str | os.PathLike[str],
        *,
        prefix: str = "",
        **options: Unpack[ResourceHandlerOptions],
    ) -> str:
        """Add the skill in a folder; return its URI; see `Server.skill` (SKILL-01)."""
        path = Path(folder)
        found = read_skill(path)
        name = found.front_matter["name"]
        root = f"skill://{'/'.join((*_segments(path, prefix), name))}"
        for other in self.all_registered():
            if other.front_matter["name"] == name:
                raise refusal(path, f"the name {name!r} is that of {other.uri}: rename one of them")
        contents = _contents(path, root, found)
        uri = f"{root}/{MANIFEST}"
        definition = ResourceDefinition(
            uri=uri,
            name=name,
            description=found.front_matter["description"],
            mime_type="text/markdown",
            size=len(found.files[MANIFEST]),
        )
        spec = self._offer(definition, contents, **options)
        entries = [
            {"uri": each, "digest": digest_of(content), "size": len(content)}
            for each, content in zip(contents, found.files.values(), strict=True)
        ]
        directories = _directories(root, contents, entries, definition)
        return self.adopt(RegisteredSkill(uri, found.front_matter, entries, directories, spec))

    def _offer(
        self,
        manifest: ResourceDefinition,
        contents: Mapping[str, ResourceContents],
        **options: Unpack[ResourceHandlerOptions],
    ) -> HandlerSpec:
        """Make a resource of `SKILL.md`, and a template of the other files, which no list has."""
        resources, inline = self.resources, ExecutionMode.INLINE
        text, name = contents[manifest.uri], manifest.name
        resource = resources.add(manifest, partial(as_asked, text), inline, **options)
        if len(contents) > 1:
            root = manifest.uri.removesuffix(f"/{MANIFEST}")
            files = ResourceTemplateDefinition(
                uri_template=_template(root), name=name, description=f"Files of the skill {name}."
            )
            try:
                read = self._reader(manifest.uri, contents)
                resources.add_template(files, read, inline, {}, **options)
            except BaseException:
                resources.unregister(manifest.uri)
                raise
        return resource.handler_spec

    def adopt(self, skill: RegisteredSkill) -> str:
        """Add a skill whose files are resources; return its URI."""
        self.put(skill.uri, skill)
        self.notifier.notify(skill)
        return skill.uri

    def unregister(self, uri: str) -> bool:
        """Remove a skill and its files; return whether there was one."""
        skill = self.registered(uri)
        if skill is None:
            return False
        self.drop(uri)
        self.resources.unregister(uri)
        self.resources.unregister(_template(uri.removesuffix(f"/{MANIFEST}")))
        return True

    def look_up(self, uri: str) -> RegisteredSkill | None:
        """Return the skill of a URI, or of an equivalent one; None if there is none."""
        return self.get(uri) or self.get(normalize_uri(uri))

    def _reader(
        self, uri: str, contents: Mapping[str, ResourceContents]
    ) -> Callable[[dict[str, Any], ToolContext[Any]], ResourceContents]:
        """Return what reads a file of a skill that is switched on."""
        root = uri.removesuffix(MANIFEST)

        def read(arguments: dict[str, Any], context: ToolContext[Any]) -> ResourceContents:
            found = contents.get(root + _encode(arguments[_FILE]))
            if found is None or self.get(uri) is None:
                raise ToolError(
                    ErrorCode.NOT_FOUND, "Resource not found", {"reason": "resource_not_found"}
                )
            return as_asked(found, arguments, context)

        return read


def _segments(folder: Path, prefix: str) -> list[str]:
    """Return the segments of a prefix.

    Raises:
        RegistrationError: it is none.
    """
    segments = prefix.split("/") if prefix else []
    for each in segments:
        if not each or each in (".", "..") or not _SEGMENT.issuperset(each):
            raise refusal(
                folder, f"prefix {prefix!r} is no path of letters, digits, -, ., _ and ~, with /"
            )
    return segments


def _template(root: str) -> str:
    return f"{root}/{{+{_FILE}}}"


def _encode(name: str) -> str:
    return quote(name, safe="/-._~")


def _contents(folder: Path, root: str, found: SkillFolder) -> dict[str, ResourceContents]:
    """Return the contents of the files of a skill, by URI.

    Raises:
        RegistrationError: a name cannot be that of a resource.
    """
    template = parse_template(_template(root))
    contents: dict[str, ResourceContents] = {}
    for name, content in found.files.items():
        try:
            uri = f"{root}/{_encode(name)}"
            check_uri(uri)
        except (InvalidUri, UnicodeEncodeError) as error:
            raise refusal(folder, f"the name {name!r} makes no URI: {error}") from None
        if template.match(uri) != {_FILE: name}:
            raise refusal(folder, f"the name {name!r} has a \\ or is misleading: rename it")
        contents[uri] = _content(uri, name, content)
    return contents


def _content(uri: str, name: str, content: bytes) -> ResourceContents:
    kind = _TYPES.get(PurePosixPath(name).suffix.lower()) or mimetypes.guess_type(name)[0]
    try:
        return TextContents(uri, content.decode(), kind or "text/plain")
    except UnicodeDecodeError:
        return BlobContents(uri, content, kind or "application/octet-stream")


def _directories(
    root: str,
    contents: Mapping[str, ResourceContents],
    entries: Iterable[Mapping[str, Any]],
    manifest: ResourceDefinition,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the children of each folder of a skill, as lists of resources show them (SKILL-07)."""
    found: dict[str, dict[str, dict[str, Any]]] = {root: {}}
    for entry in entries:
        uri = entry["uri"]
        *folders, name = uri.removeprefix(f"{root}/").split("/")
        folder = root
        for each in folders:
            inner = f"{folder}/{each}"
            child = {"uri": inner, "name": unquote(each), "mimeType": DIRECTORY_TYPE}
            found[folder].setdefault(inner, child)
            found.setdefault(inner, {})
            folder = inner
        about = {"name": unquote(name)}
        if uri == manifest.uri:
            about = {"name": manifest.name, "description": manifest.description or ""}
        kind = contents[uri].mime_type
        found[folder][uri] = {"uri": uri, **about, "mimeType": kind, "size": entry["size"]}
    return found
