"""Checks of arguments. Each returns the argument as a plain Python value, or raises an InputError that names it.

All are called as check(x, name, callee, ...): `name` is the argument's, `callee` the function or class that it was
given to, "" where the name alone says enough.
A JAX tracer passes where a number is asked for, since settings of methods and models may be swept or differentiated.
"""

from __future__ import annotations

import errno
import functools
import math
import numbers
import os
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from ..errors import InputError, nearest

Check = Callable[[Any, str, str], Any]


def shown(x: Any, most: int = 80) -> str:
    """The text of x in one line, cut to `most` characters; the name of its type where it has none."""
    try:
        text = " ".join(repr(x).split())
    except Exception:
        text = f"<{type(x).__name__}>"
    return text if len(text) <= most else text[: most - 1] + "…"


def refused(x: Any, must: str, name: str, callee: str = "", hint: str = "") -> InputError:
    """The error for an argument that must be something else."""
    if callee:
        return InputError(f"{callee}({name}={shown(x)}): {name} must be {must}.{hint}")
    return InputError(f"{name} must be {must}, not {shown(x)}.{hint}")


def plain_scalar(x: Any) -> Any:
    """A real number of any kind (numpy scalars, arrays without axes, Fraction, Decimal) as a Python number, else None:
    also for a tracer, which is a jax.Array without a value."""
    if isinstance(x, (np.ma.MaskedArray, Tracer)):
        return None
    if isinstance(x, (np.ndarray, np.generic, jax.Array)):
        return np.asarray(x).item() if x.ndim == 0 and getattr(x.dtype, "kind", None) in ("i", "u", "f") else None
    return x if isinstance(x, (numbers.Real, Decimal)) and not isinstance(x, bool) else None


def as_python(x: Any) -> Any:
    """Numpy scalars and arrays of one axis at most as Python's numbers, texts and tuples; anything else as it is."""
    if isinstance(x, (list, tuple)):
        return tuple(map(as_python, x))
    is_array = isinstance(x, (np.ndarray, np.generic, jax.Array)) and not isinstance(x, (Tracer, np.ma.MaskedArray))
    if not is_array or x.ndim > 1 or getattr(x.dtype, "kind", None) not in ("i", "u", "f", "b", "U"):
        return x
    return as_python(np.asarray(x).tolist())


def number(
    x: Any,
    name: str,
    callee: str = "",
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    none: bool = False,
) -> Any:
    """A finite number within bounds, as a float. none: None passes too."""
    if isinstance(x, Tracer) or (none and x is None):
        return x
    must = "a number" + _bounds(above, least, below, most) + (" or None" if none else "")
    scalar = plain_scalar(x)
    if scalar is None:
        raise refused(x, must, name, callee)
    try:
        value = float(scalar)
    except (OverflowError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise refused(x, "finite", name, callee)
    if not (above < value < below and least <= value <= most):
        raise refused(x, "positive" if above == 0 and below == most == math.inf else must, name, callee)
    return value


def _bounds(above: float, least: float, below: float, most: float) -> str:
    if least > -math.inf and most < math.inf:
        return f" of at least {least} and at most {most}"
    if above > -math.inf and below < math.inf:
        return f" between {above:g} and {below:g}"
    words = [f"above {above:g}"] * (above > -math.inf) + [f"of at least {least:g}"] * (least > -math.inf)
    words += [f"below {below:g}"] * (below < math.inf) + [f"of at most {most:g}"] * (most < math.inf)
    return " " + " and ".join(words) if words else ""


def positive(x: Any, name: str, callee: str = "", *, none: bool = False) -> Any:
    """A finite number above zero."""
    return number(x, name, callee, above=0.0, none=none)


def whole(
    x: Any, name: str, callee: str = "", *, least: int | None = None, most: int | None = None, none: bool = False
) -> Any:
    """A whole number within bounds, as an int; 3.0 is one. It decides shapes and programs, so that a tracer does not
    pass."""
    if none and x is None:
        return None
    must = (
        "a whole number"
        + _bounds(-math.inf, -math.inf if least is None else least, math.inf, math.inf if most is None else most)
        + (" or None" if none else "")
    )
    value = 0
    try:
        value = int(plain_scalar(x))
        fits = value == x and (least is None or value >= least) and (most is None or value <= most)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise refused(x, must, name, callee)
    return value


def one_of(*known: Any, none: bool = False) -> Check:
    """A check for one of a few values, texts or whole numbers; with none, None passes too."""

    def check(x: Any, name: str, callee: str = "") -> Any:
        return choice(x, name, callee, known, none=none)

    return check


def choice(x: Any, name: str, callee: str, known: Iterable[Any], *, none: bool = False) -> Any:
    """One of the known values, as it stands among them."""
    known = tuple(known)
    if none and x is None:
        return None
    value = str(x) if isinstance(x, str) else plain_scalar(x)
    found = [k for k in known if value is not None and isinstance(k, str) == isinstance(value, str) and k == value]
    if found:
        return found[0]
    listed = [repr(k) for k in known] + ["None"] * none
    if len(listed) > 5 and isinstance(x, str):
        raise refused(x, f"one of the {len(known)} known", name, callee, nearest(str(x), map(str, known)))
    close = nearest(str(x), map(str, known)) if isinstance(x, str) else ""
    must = ", ".join(listed[:-1]) + f" or {listed[-1]}" if len(listed) > 1 else listed[0]
    raise refused(x, must, name, callee, close if "Did you mean" in close else "")


def flag(x: Any, name: str, callee: str = "") -> bool:
    """True or False."""
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    raise refused(x, "True or False", name, callee)


def vector(x: Any, name: str, callee: str = "", *, size: int | None = None, least: int = 1) -> tuple[float, ...]:
    """A list, tuple or array of finite numbers along one axis, as a tuple of floats."""
    must = f"a list of {'numbers' if size is None else f'{size} numbers'}"
    if (
        isinstance(x, Tracer)
        or not isinstance(x, (list, tuple, range, np.ndarray, jax.Array))
        or np.ma.is_masked(x)
        or getattr(x, "ndim", 1) != 1
    ):
        raise refused(x, must, name, callee)
    if any(plain_scalar(y) is None for y in x) or len(x) < least or (size is not None and len(x) != size):
        raise refused(x, must, name, callee)
    return tuple(number(y, name, callee) for y in x)


def as_array(x: Any, name: str, callee: str = "", *, copy: bool = True) -> Any:
    """A float array in the working precision (numpy, unless traced); integers and float32 are converted exactly.

    copy: without it, an array that is in the working precision is returned as it is, for arrays of a million members
    that are not kept.
    """
    argument = f"{callee}({name}=...): {name}" if callee else name
    if not isinstance(x, Tracer):
        try:
            if np.ma.is_masked(x):
                raise TypeError("it has masked entries")
            x = np.asarray(x)
            if x.dtype == object or not (np.issubdtype(x.dtype, np.number) or x.dtype == bool) or x.dtype.kind == "m":
                raise TypeError(f"its dtype is {x.dtype}")
        except Exception as error:  # whatever numpy, JAX or an object's own __array__ raise
            raise InputError(f"{argument} must be an array of numbers: {' '.join(str(error).split())}.") from None
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        raise InputError(f"{argument} must be real, not {x.dtype}.")
    if isinstance(x, Tracer):
        return jnp.asarray(x, float)
    with np.errstate(over="ignore"):
        x = np.array(x, jnp.result_type(float), copy=copy or None)
    if not np.all(np.isfinite(x)):
        raise InputError(f"{argument} has entries that are not finite: {x.ravel()[~np.isfinite(x).ravel()][:3]}.")
    return x


def as_device_array(x: Any, name: str, device: Any = None) -> Any:
    """As `as_array`, on a device (None: JAX's default): an array that is there already is not copied to the host, and
    any other one is copied once."""
    plain = isinstance(x, (jax.Array, np.ndarray)) and not np.ma.is_masked(x) and x.dtype == jnp.result_type(float)
    x = x if plain else as_array(x, name)
    array = jax.device_put(x, device) if isinstance(x, jax.Array) else jax.device_put(x, device, may_alias=False)
    if not all_finite(array):
        as_array(array, name)  # raises the error, with the entries
    return array


@jax.jit
def _all_finite(x: Any) -> Any:
    return jnp.all(jnp.isfinite(x))


def all_finite(x: jax.Array) -> bool:
    """Whether all entries are finite, reduced to one number where the array is."""
    return bool(_all_finite(x))


def as_path(x: Any, name: str, callee: str = "") -> Path:
    """The path of a file, which need not exist."""
    text = x if isinstance(x, str) else os.fspath(x) if isinstance(x, os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise refused(x, "the path of a file, as text or pathlib.Path", name, callee)
    try:
        os.stat(text)
    except UnicodeEncodeError:  # half of a surrogate pair
        raise refused(x, "a path that the file system can encode", name, callee) from None
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL):
            raise refused(x, f"a path that the file system takes ({error.strerror})", name, callee) from None
    return Path(text)


def function(x: Any, name: str, callee: str = "", *, of: str = "q") -> Any:
    """A function, not a class."""
    if callable(x) and not isinstance(x, type):
        return x
    argument = f"{callee}({name}=...): {name}" if callee else name
    given = f"the class {x.__name__}" if isinstance(x, type) else type(x).__name__
    raise InputError(f"{argument} must be a function of {of}, not {given}.")


def instance(x: Any, name: str, callee: str = "", *, kinds: type | tuple[type, ...], must: str, hint: str = "") -> Any:
    """An instance of a class of geomint; a class given in its place is named."""
    if isinstance(x, kinds):
        return x
    if isinstance(x, type) and issubclass(x, kinds):
        raise InputError(
            f"{callee}{': ' * bool(callee)}{name} is the class {x.__name__}; write {x.__name__}(...) with its "
            "arguments."
        )
    raise InputError(f"{callee}{': ' * bool(callee)}{name} must be {must}, not {type(x).__name__}{hint}.")


def bounded(check: Callable[..., Any], **bounds: Any) -> Check:
    """A check with its bounds, for declarations of fields."""
    return functools.partial(check, **bounds)
