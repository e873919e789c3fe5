"""Names, addresses and requests by which a client tries to get further than the operator's list, by effect.

Each trick is sent to a real proxy; two canary servers count who reaches them.
"""

import dataclasses

import anyio.lowlevel
import pytest

from tests.egress.loopback import CANARY, HIDDEN, LIMITS, LISTED, connect_to, get, greeting, loopback, socks

P = "{port}"

AUTHORITIES = {
    "another name": "evil.example:{port}",
    "a name that ends like a listed one": "evilgood.example:{port}",
    "a name that begins like a listed one": "good.example.evil.example:{port}",
    "a listed name as user": "good.example@evil.example:{port}",
    "a listed name as user with port": "good.example:{port}@evil.example:{port}",
    "NUL after a listed name": b"good.example\0.evil.example:{port}",
    "percent NUL": "good.example%00.evil.example:{port}",
    "percent letters": "%67ood.example:{port}",
    "a fragment": "evil.example#good.example:{port}",
    "a path": "evil.example/good.example:{port}",
    "a backslash": "evil.example\\good.example:{port}",
    "a query": "evil.example?good.example:{port}",
    "a blank": "good.example evil.example:{port}",
    "a tab": "good.example\tevil.example:{port}",
    "two dots": "good..example:{port}",
    "two final dots": "good.example..:{port}",
    "a leading dot": ".good.example:{port}",
    "a wildcard's own name": "wild.example:{port}",
    "a star": "*.wild.example:{port}",
    "a wildcard with an empty label": ".wild.example:{port}",
    "a wildcard without a dot": "evilwild.example:{port}",
    "full-width letters": "\uff47ood.example:{port}",
    "circled digits": "①②⑦.0.0.1:{port}",
    "an ideographic full stop": "good。example:{port}",
    "a dotless i": "w\u0131ld.example:{port}",
    "the Kelvin sign": "a.wi\u212ad.example:{port}",
    "a soft hyphen": "good\u00ad.example:{port}",
    "a long name": "a" * 64 + ".wild.example:{port}",
    "a very long name": "a." * 127 + "wild.example:{port}",
    "a label that begins with a hyphen": "-a.wild.example:{port}",
    "no port": "good.example",
    "an empty port": "good.example:",
    "port 0": "good.example:0",
    "a signed port": "good.example:+{port}",
    "a port with a blank": "good.example: {port}",
    "a port beyond 65535": "good.example:65536",
    "a port that wraps around": "good.example:{wrapped}",
    "a hexadecimal port": "good.example:0x50",
    "a port with underscores": "good.example:4_43",
    "Arabic digits as port": "good.example:٤٤٣",
    "two ports": "good.example:{port}:{port}",
    "an unlisted port": "good.example:22",
    "an empty host": ":{port}",
    "localhost": "localhost:{port}",
    "localhost in capitals": "LOCALHOST.:{port}",
    "a URL": "http://good.example:{port}",
}

ADDRESSES = {
    "an unlisted address": f"{HIDDEN}:{P}",
    "loopback": "127.0.0.1:{port}",
    "zero": "0.0.0.0:{port}",
    "short zero": "0:{port}",
    "a short address": "127.4:{port}",
    "one number": "2130706436:{port}",
    "hexadecimal": "0x7f000004:{port}",
    "hexadecimal parts": "0x7f.0x0.0x0.0x4:{port}",
    "octal": "0177.0.0.04:{port}",
    "leading zeros": "127.000.000.004:{port}",
    "too many parts": "127.0.0.0.4:{port}",
    "a final dot": f"{HIDDEN}.:{P}",
    "the metadata service": "169.254.169.254:80",
    "the metadata service in IPv6": "[fd00:ec2::254]:80",
    "IPv6 loopback": "[::1]:{port}",
    "IPv6 without brackets": "::1:{port}",
    "IPv6 unspecified": "[::]:{port}",
    "mapped": f"[::ffff:{HIDDEN}]:{P}",
    "mapped of a listed one": f"[::ffff:{CANARY}]:{P}",
    "compatible": f"[::{HIDDEN}]:{P}",
    "translated": f"[::ffff:0:{HIDDEN}]:{P}",
    "NAT64": "[64:ff9b::7f00:4]:{port}",
    "6to4": "[2002:7f00:4::]:{port}",
    "a zone": "[::1%lo]:{port}",
    "a zone with percent": "[fe80::1%25lo]:{port}",
    "brackets around IPv4": f"[{HIDDEN}]:{P}",
    "half a bracket": "[::1:{port}",
    "IPvFuture": "[v1.x]:{port}",
}

BOTH = "GET http://good.example:{port}/ HTTP/1.1\r\n"
SECOND = f"GET http://{HIDDEN}:{P}/ HTTP/1.1\r\nHost: {HIDDEN}\r\n\r\n"

REQUESTS = {
    "origin form": "GET / HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n",
    "asterisk form": "OPTIONS * HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n",
    "another scheme": "GET https://evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "ftp": "GET ftp://evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "user information": "GET http://good.example:{port}@evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "no slashes": "GET http:evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "three slashes": "GET http:///evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "a backslash": "GET http://evil.example:{port}\\@good.example:{port}/ HTTP/1.1\r\n\r\n",
    "HTTP/0.9": "GET http://evil.example:{port}/\r\n\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a blank before the request": " GET http://evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "a line before the request": "\r\nGET http://evil.example:{port}/ HTTP/1.1\r\n\r\n",
    "SOCKS 4": "\4\1\0\x50\x7f\0\0\4user\0",
}

SMUGGLED = {
    "pipelined": BOTH + "\r\n" + SECOND,
    "two lengths": BOTH + "Content-Length: 0\r\nContent-Length: 90\r\n\r\n" + SECOND,
    "a list of lengths": BOTH + "Content-Length: 0, 90\r\n\r\n" + SECOND,
    "a signed length": BOTH + "Content-Length: +0\r\n\r\n" + SECOND,
    "length and chunks": BOTH + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "chunks in disguise": BOTH + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a blank before the colon": BOTH + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + SECOND,
    "a tab before the colon": BOTH + "Content-Length\t: 0\r\n\r\n" + SECOND,
    "a folded line": BOTH + "X: y\r\n Content-Length: 90\r\n\r\n" + SECOND,
    "a bare LF": BOTH + "X: y\nContent-Length: 90\r\n\r\n" + SECOND,
    "a bare CR": BOTH + "X: y\rContent-Length: 90\r\n\r\n" + SECOND,
    "NUL in a value": BOTH + "X: \0Content-Length: 90\r\n\r\n" + SECOND,
    "two hosts": BOTH + "Host: good.example\r\nHost: evil.example\r\n\r\n" + SECOND,
    "another host": BOTH + "Host: evil.example:{port}\r\n\r\n" + SECOND,
    "no name": BOTH + ": y\r\n\r\n" + SECOND,
    "length as connection option": BOTH + "Connection: content-length\r\nContent-Length: 3\r\n\r\nabc" + SECOND,
    "keep-alive": BOTH + "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n\r\n" + SECOND,
    "upgrade": BOTH + "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n" + SECOND,
    "a line of blanks": BOTH + f"X: a{' ' * 30_000}b\r\n Content-Length: 9\r\n\r\n" + SECOND,
    "too many fields": BOTH + "X: y\r\n" * 300 + "\r\n" + SECOND,
    "a head that is too long": BOTH + f"X: {'y' * 40_000}\r\n\r\n" + SECOND,
}

PASSED_ON = {"pipelined", "another host", "length as connection option", "keep-alive", "upgrade"}
"""Of these the first request reaches the listed server, written anew."""


def filled(text: str | bytes, port: int) -> bytes:
    data = text.encode("utf-8") if isinstance(text, str) else text
    return data.replace(b"{port}", str(port).encode()).replace(b"{wrapped}", str(port + 65536).encode())


async def test_no_spelling_of_a_name_or_an_address_leads_to_a_host_that_is_not_listed() -> None:
    """network-2, network-3, network-4: as CONNECT, as http and by SOCKS; nothing reaches a server."""
    async with loopback() as net:
        for what, text in (AUTHORITIES | ADDRESSES).items():
            authority = filled(text, net.port)
            name, _, _ = authority.rpartition(b":")
            requests = [connect_to(authority), b"GET http://" + authority + b"/ HTTP/1.1\r\n\r\n"]
            if what not in PORT_TRICKS and len(name) < 256:
                requests.append(socks(3, name, net.port))
            for request in requests:
                reply = await net.send(request)
                assert reply.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 403 ", b"\5\0\5\2")), (what, request, reply)
            assert net.reached_canaries == 0, what
            assert net.servers["127.0.0.1"].connections == 0, what
        assert net.servers[LISTED].connections == 0
        assert {*net.looked_up} <= {"good.example"}, "names are looked up that are not listed"


PORT_TRICKS = {what for what, text in AUTHORITIES.items() if "port" in what}
"""SOCKS sends a port as two bytes."""


@pytest.mark.parametrize("table", [REQUESTS, SMUGGLED], ids=["requests", "smuggled"])
async def test_no_form_of_a_request_leads_to_a_host_that_is_not_listed(table: dict[str, str]) -> None:
    """network-6, network-7: what a listed server gets is one request, with the host that was judged."""
    async with loopback() as net:
        for what, text in table.items():
            server = net.servers[LISTED]
            server.received.clear()
            await net.send(filled(text, net.port), ends=False)
            assert net.reached_canaries == 0, what
            assert server.received.count(b" HTTP/1.1\r\n") <= 1, (what, server.received)
            assert b"evil" not in server.received, (what, server.received)
            assert HIDDEN.encode() not in server.received, (what, server.received)
            assert what in PASSED_ON or not server.received, what


async def test_socks_admits_only_connections_to_what_is_listed() -> None:
    """network-8: names are compared, addresses judged as addresses; BIND, UDP and passwords are refused."""
    hidden = bytes((127, 0, 0, 4))
    async with loopback() as net:
        for what, data, code in (
            ("IPv4", socks(1, hidden, net.port), 2),
            ("IPv6", socks(4, bytes(15) + b"\1", net.port), 2),
            ("mapped", socks(4, bytes(10) + b"\xff\xff" + hidden, net.port), 2),
            ("an address as name", socks(3, HIDDEN.encode(), net.port), 2),
            ("a number as name", socks(3, b"2130706436", net.port), 2),
            ("an empty name", socks(3, b"", net.port), 2),
            ("NUL", socks(3, b"good.example\0evil.example", net.port), 2),
            ("bytes beyond ASCII", socks(3, b"\xff\xfe.example", net.port), 2),
            ("another port", socks(3, b"good.example", 22), 2),
            ("port 0", socks(3, b"good.example", 0), 2),
            ("BIND", socks(3, b"good.example", net.port, command=2), 7),
            ("UDP", socks(3, b"good.example", net.port, command=3), 7),
            ("an unknown kind", socks(2, b"", net.port), 8),
        ):
            assert (await net.send(data))[:4] == bytes((5, 0, 5, code)), what
        assert await net.send(b"\5\1\2") == b"\5\xff"
        assert (net.reached_canaries, net.servers[LISTED].connections) == (0, 0)
        assert (await net.send(socks(3, b"GOOD.example.", net.port))).endswith(b"hello")
        assert (await net.send(socks(1, bytes((127, 0, 0, 2)), net.port))).endswith(b"hello")


async def test_a_name_that_resolves_differently_the_second_time_leads_nowhere_new() -> None:
    """network-4: every connection goes to an address that was judged for it; a private one must be listed itself."""
    names = {
        "good.example": [LISTED, HIDDEN, LISTED, f"{HIDDEN},{LISTED}", HIDDEN],
        "b.wild.example": ["::1"],
        "c.wild.example": [f"::ffff:{HIDDEN}"],
        "d.wild.example": ["64:ff9b::7f00:4"],
        "e.wild.example": ["fe80::1%lo"],
        "f.wild.example": ["169.254.169.254"],
        "g.wild.example": ["10.0.0.1"],
        "h.wild.example": ["0.0.0.0"],
        "i.wild.example": ["not an address"],
    }
    async with loopback(names) as net:
        request = filled(connect_to("good.example:{port}"), net.port)
        replies = [(await net.send(request)).split(b"\r\n")[0] for _ in range(5)]
        assert [line[9:12] for line in replies] == [b"200", b"403", b"200", b"200", b"403"]
        for name in list(names)[1:]:
            assert (await net.send(filled(connect_to(f"{name}:{P}"), net.port)))[9:12] in (b"403", b"502"), name
        assert net.servers[LISTED].connections == 3
        assert net.reached_canaries == 0
        refused = net.proxy.refusals.since(0)
        assert f'network = [..., "{HIDDEN}:{net.port}"]' in refused[0].sentence


async def test_a_tunnel_for_tls_carries_tls_for_its_host_only() -> None:
    """network-5: the greeting names the host, in one record or in several; anything else is closed."""
    hello = greeting("Good.Example")
    body = hello[5:]
    cut = [body[:3], body[3:100], body[100:]]
    in_records = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in cut)
    other, nameless = greeting("evil.example"), greeting(None)
    async with loopback() as net:
        limits = dataclasses.replace(LIMITS, tls_ports=frozenset({net.port}))
        net.proxy._limits = limits
        start = filled("CONNECT good.example:{port} HTTP/1.1\r\n\r\n", net.port)
        for what, data in {
            "another name": other,
            "no name": nameless,
            "http": b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
            "ssh": b"SSH-2.0-x\r\n",
            "an alert first": b"\x15\x03\x01\x00\x02\x01\x00" + hello,
            "an empty record first": b"\x16\x03\x01\x00\x00" + hello,
            "two messages": b"\x16\x03\x01" + (len(body) + 4).to_bytes(2, "big") + body + b"\x01\0\0\0",
            "another message": hello[:5] + b"\x02" + body[1:],
            "a length beyond the limit": hello[:6] + b"\xff\xff\xff" + hello[9:],
            "cut off": hello[:-10],
            "nothing": b"",
            "a hello in records of one byte": b"".join(b"\x16\x03\x01\x00\x01" + bytes((byte,)) for byte in body),
            "a broken extension": hello.replace(b"\x00\x0cGood.Example", b"\x00\x0fGood.Example"),
            "NUL in the name": hello.replace(b"Good.Example", b"Good\0Example"),
        }.items():
            reply = await net.send(start + data)
            assert reply in (b"", b"HTTP/1.1 200 Connection established\r\n\r\n"), what
        assert net.servers[LISTED].received == b""
        assert (await net.send(start + hello)).endswith(hello)
        assert (await net.send(start + in_records)).endswith(in_records)
        address = filled(f"CONNECT {LISTED}:{P} HTTP/1.1\r\n\r\nraw", net.port)
        assert (await net.send(address)).endswith(b"raw"), "an address has no name to compare"


async def test_what_is_listed_is_reached_in_every_accepted_spelling() -> None:
    """network-2"""
    async with loopback() as net:
        for name in ("good.example", "GOOD.Example", "good.example.", "a.wild.example", "X.a.wild.example", LISTED):
            assert (await net.send(filled(connect_to(f"{name}:{P}"), net.port))).endswith(b"hello"), name
            page = await net.send(filled(get(f"http://{name}:{P}/x?y", "Host: other", "Accept: */*"), net.port))
            assert page.startswith(b"HTTP/1.1 200 OK\r\n"), name
            assert page.endswith(b"Connection: close\r\n\r\nok"), name
        head = bytes(net.servers[LISTED].received).split(b"\r\n\r\n")[-2].split(b"GET")[-1]
        assert head.split(b"\r\n") == [
            b" /x?y HTTP/1.1",
            f"Host: {LISTED}:{net.port}".encode(),
            b"Accept: */*",
            b"Connection: close",
        ]


async def test_a_decision_admits_a_name_and_not_where_it_leads() -> None:
    """network-9: the decision is asked about what is not listed; addresses are judged all the same."""
    asked: list[str] = []

    async def decide(refusal: object) -> bool:
        asked.append(str(getattr(refusal, "target", "")))
        await anyio.lowlevel.checkpoint()
        return "yes" in asked[-1]

    names = {"yes.example": [LISTED], "yes.hidden.example": [HIDDEN]}
    async with loopback(names, decide=decide) as net:
        replies = [
            (await net.send(filled(connect_to(f"{name}:{P}"), net.port)))[9:12]
            for name in ("good.example", "yes.example", "no.example", "yes.hidden.example")
        ]
        assert replies == [b"200", b"200", b"403", b"403"]
        assert asked == ["yes.example", "no.example", "yes.hidden.example"]
        assert net.reached_canaries == 0
