"""Pictures, scaled down to what models accept. Imported by the decoder alone: Pillow takes 60 ms to load.

The bounds are those that Anthropic documents for its models (docs.anthropic.com, "Vision"): larger pictures are scaled
down there too, after they were sent, and over 5 MB in base64 they are refused.
"""

import io
import struct
from collections.abc import Mapping
from importlib import import_module
from typing import Any, BinaryIO, cast

from PIL import Image, ImageOps

LONGEST_SIDE = 1_568
MOST_PIXELS = 1_150_000
"""Of a picture that is returned."""

SOURCE_PIXELS = 64_000_000
"""Largest picture that is decoded, after what JPEG can scale while it is decoded."""

PNG_BYTES = 1_500_000
"""A larger result becomes a JPEG, which is a tenth of that for photographs; well within 5 MB in base64."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "ICO", "AVIF")
"""Other formats are not even tried: each decoder that could be reached is one more that could be attacked."""

_QUALITY = 85
_DAMAGED = (OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, KeyError, struct.error, OverflowError)
"""What Pillow raises for damaged files, by its own tests of fuzzed ones."""

_MODULES = ("Avif", "Bmp", "Gif", "Ico", "Jpeg", "Mpo", "Png", "Tiff", "WebP")

Image.preinit()
# The confined process can load nothing later: neither formats, which register themselves, nor what they import late.
for _name in ("copy", *(f"PIL.{name}ImagePlugin" for name in _MODULES)):
    import_module(_name)

# The limit is checked below, against what is left after `draft`.
Image.MAX_IMAGE_PIXELS = None


def decode(file: BinaryIO, _: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Decode the first frame, and return it in the size of `fitted`."""
    try:
        with Image.open(file, formats=FORMATS) as picture:
            width, height = picture.size
            picture.draft("RGB", fitted(width, height))
            if picture.width * picture.height > SOURCE_PIXELS:
                error = f"{width} x {height} pixels; at most {SOURCE_PIXELS // 1_000_000} million are decoded"
                return {"error": error, "is_too_large": True}, ()
            frames = int(getattr(picture, "n_frames", 1))
            is_photo = picture.format == "JPEG"
            turned = ImageOps.exif_transpose(_plain(picture))
    except _DAMAGED as error:
        return {"error": f"it is damaged ({_short(error)})"}, ()
    if turned.size != picture.size:  # turned by its EXIF orientation, and so is the original size
        width, height = height, width
    data, kind = encode(turned.resize(fitted(width, height), reducing_gap=2.0), is_photo=is_photo)
    shown = fitted(width, height)
    facts = {"width": width, "height": height, "frames": frames, "shown": [shown], "types": [kind]}
    return facts, (data,)


def fitted(width: int, height: int) -> tuple[int, int]:
    """The size in which a picture is returned: never larger than it is."""
    scale = min(1.0, LONGEST_SIDE / max(width, height, 1), (MOST_PIXELS / max(width * height, 1)) ** 0.5)
    return max(1, int(width * scale)), max(1, int(height * scale))


def encode(picture: Image.Image, *, is_photo: bool) -> tuple[bytes, str]:
    """A picture as PNG, or as JPEG where that is much smaller; with the media type."""
    if not is_photo:
        output = io.BytesIO()
        picture.save(output, "PNG")
        if output.tell() <= PNG_BYTES:
            return output.getvalue(), "image/png"
    output = io.BytesIO()
    _opaque(picture).save(output, "JPEG", quality=_QUALITY)
    return output.getvalue(), "image/jpeg"


def _plain(picture: Image.Image) -> Image.Image:
    """Decode to one of the modes that can be scaled and encoded: gray, RGB or RGBA."""
    picture.load()
    if picture.mode.startswith("I;16") or picture.mode in ("I", "F"):
        # 16 bits, or a range of its own: bring what is there to 8 bits.
        gray = picture.convert("F")
        low, high = cast("tuple[float, float]", gray.getextrema())
        factor = 255.0 / max(high - low, 1e-9)
        return gray.point(lambda value: value * factor - low * factor).convert("L")
    if picture.mode in ("L", "RGB", "RGBA"):
        return picture
    has_alpha = picture.mode in ("LA", "PA", "La", "RGBa") or "transparency" in picture.info
    return picture.convert("RGBA" if has_alpha else "L" if picture.mode == "1" else "RGB")


def _opaque(picture: Image.Image) -> Image.Image:
    if picture.mode != "RGBA":
        return picture
    ground = Image.new("RGB", picture.size, "white")
    ground.paste(picture, mask=picture.getchannel("A"))
    return ground


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
