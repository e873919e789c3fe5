"""Opening services at a URL (docs/specs/services.md)."""

import logging
import traceback

import pytest

from coretools.errors import BadSetting
from coretools.services.connect import open_services

SECRET = "s3cr-t"


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/rest@127.0.0.1:1/0",
        f"redis://:{SECRET}@[::1/0",
        f"http://:{SECRET}@127.0.0.1:1",
        f":{SECRET}@127.0.0.1",
        f"nats://app:{SECRET}/rest@127.0.0.1:1",
        f"nats://app:{SECRET}@[::1",
        f"nats://app:{SECRET}@",
        f"nats://app:{SECRET}@host:1?tls=no",
        f"tls://app:{SECRET}@host:port",
    ],
)
async def test_a_url_that_cannot_be_used_ends_the_start_and_is_not_disclosed(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """services-9: a password may be a part of it."""
    caplog.set_level(logging.DEBUG)
    with pytest.raises(BadSetting, match=r"services\.url") as caught:
        async with open_services(url):
            pytest.fail("opened")
    assert SECRET not in "".join(traceback.format_exception(caught.value)) + caplog.text
