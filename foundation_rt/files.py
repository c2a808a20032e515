"""The public path of `foundation_rt/base/files`."""

from typing import TYPE_CHECKING

from .base.lazy_names import forward_names

if TYPE_CHECKING:
    from .base.files import *  # noqa: F403

forward_names(__name__, "foundation_rt.base.files")
