"""What counts as a credential, what does not, and that pieces, lines and command lines agree (docs/specs/redaction.md).

The tokens are put together here so that no scanner takes this file for a leak.
"""

import ast
import base64
import logging
import random
import re
from pathlib import Path
from urllib.parse import quote

import pytest

import coretools
from coretools.config.logs import TextFormatter
from coretools.redaction.argv import MAX_LINE_CHARACTERS, MAX_WORD_CHARACTERS, redacted_command_line
from coretools.redaction.redactor import Redactor, drop_partial_lines, secret_values
from coretools.redaction.stream_redactor import MAX_HELD_BYTES, StreamRedactor
from coretools.truncation import Excerpt, Excerpter

PLAIN = Redactor()
LETTERS = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
LONG = LETTERS * 4
BODY = "\n".join(["MIIE" + "aB3/" * 15] * 3)
BEGIN, END = "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
KEY = f"{BEGIN}\n{BODY}\nabcd=\n{END}"
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.{LETTERS}"
PASSPHRASE = "Tr0ub4dor&3 horse"
TOKEN = "p@ss/w0rd+x=é"
KNOWING = Redactor([PASSPHRASE, TOKEN])

SHAPES = {
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "aws temporary": "ASIA" + "Y34FZKBOKMUTVV7A",
    "github": "ghp_" + LETTERS + "abcd",
    "github application": "ghs_" + LETTERS + "abcd",
    "github fine-grained": "github_pat_" + LETTERS + "_" + LETTERS,
    "gitlab": "glpat-" + LETTERS[:20],
    "slack": "xoxb-" + "123456789012-" + LETTERS,
    "slack application": "xapp-1-" + LETTERS,
    "anthropic": "sk-ant-" + "api03-" + LONG,
    "openai project": "sk-proj-" + LONG,
    "openai": "sk-" + LETTERS,
    "google": "AIza" + LETTERS + "abc",
    "npm": "npm_" + LETTERS + "abcd",
    "pypi": "pypi-" + "AgEIcHlwaS5vcmcC" + LETTERS,
    "stripe": "sk_" + "live_" + LETTERS,
    "hugging face": "hf_" + LETTERS + "ab",
    "openai of old": "sk-" + LETTERS[:20] + "T3BlbkFJ" + LETTERS[:20],
    "openrouter": "sk-or-v1-" + "0123456789abcdef" * 4,
    "google map": "AIzaSy" + LETTERS + "a",
    "docker": "dckr_pat_" + LETTERS,
    "vault": "hvs." + LETTERS,
    "sendgrid": "SG." + LETTERS[:22] + "." + LETTERS,
    "jwt": JWT,
    "jwt, cut": JWT.rpartition(".")[0],
}


def test_a_token_is_recognized_by_its_format() -> None:
    """redaction-1: wherever it occurs; the surrounding text is kept."""
    for frame in (
        "{}",
        "a {} b",
        '"{}"',
        "https://x/{}?y",
        "x={};",
        "\\n{}\\n",
        "%3A{}",
        "({})",
        "\033[1m{}\033[0m",
    ):
        for token in SHAPES.values():
            before, after = frame.split("{}")
            redacted = PLAIN.text(frame.format(token))
            assert redacted.startswith(before), (frame, token)
            assert "[redacted:" in redacted, (frame, token)
            assert token[:16] not in redacted, (frame, token)
            assert token[-8:] not in redacted, (frame, token)
            assert after[:1] in redacted, (frame, token)


@pytest.mark.parametrize("before", ["x", "X", "9", "_", "value", "a" * 5000])
def test_a_token_is_recognized_in_the_middle_of_a_word(before: str) -> None:
    """redaction-1: if its prefix is rare enough; adjacent text is kept."""
    glued = ("github", "gitlab", "slack", "anthropic", "npm", "pypi", "docker", "vault", "github fine-grained")
    glued += ("openai of old", "openrouter", "google map", "hugging face")
    glued += ("jwt",) if len(before) <= 64 else ()
    for name in glued:
        text = f"{before}{SHAPES[name]} b"
        redacted = PLAIN.text(text)
        assert redacted.startswith(f"{before}[redacted:"), name
        assert redacted.endswith("] b"), name
        assert PLAIN.data(text.encode()).decode() == redacted, name


IN_CONTEXT = {
    "address": ("git clone https://bob:s3cr3t@example.com/x", "git clone https://bob:[redacted:password]@example.com/x"),
    "address with an at sign": ("amqp://u:p@ss@h:1/v", "amqp://u:[redacted:password]@h:1/v"),
    "address without a user": ("redis://:s3cr3t@h/0", "redis://:[redacted:password]@h/0"),
    "bearer": ("Authorization: Bearer abc.def_123", "Authorization: Bearer [redacted:header]"),
    "basic": ("> authorization: Basic dXNlcjpwYXNz\r\n", "> authorization: Basic [redacted:header]\r\n"),
    "header in JSON": ('{"Authorization": "token abcdef12"}', '{"Authorization": "token [redacted:header]"}'),
    "cookie": ("Set-Cookie: sid=abcdef; Path=/\nx", "Set-Cookie: [redacted:header]\nx"),
    "api key": ("X-Api-Key: 0123456789abcdef", "X-Api-Key: [redacted:key]"),
    "variable": ("DB_PASSWORD=hunter2", "DB_PASSWORD=[redacted:password]"),
    "variable of letters": ("PASSWORD=letmein\n", "PASSWORD=[redacted:password]\n"),
    "variable with symbols": ("MYSQL_PWD=a&b;c)d", "MYSQL_PWD=[redacted:password]"),
    "exported": ("export API_TOKEN='abc 123 def' x", "export API_TOKEN='abc 123 def' x"),
    "exported, one word": ("export API_TOKEN='abc123def' x", "export API_TOKEN='[redacted:token]' x"),
    "aws": (f"aws_secret_access_key = {AWS_SECRET}", "aws_secret_access_key = [redacted:secret]"),
    "JSON": ('{"password":"hunter2","a":1}', '{"password":"[redacted:password]","a":1}'),
    "JSON in JSON": ('{\\"password\\":\\"hunter2\\"}', '{\\"password\\":\\"[redacted:password]\\"}'),
    "JSON with an escape": ('"password": "a\\"b", "c"', '"password": "[redacted:password]", "c"'),
    "YAML": ("  api_key: abcdef123456\n", "  api_key: [redacted:key]\n"),
    "ini": ("password = hunter2", "password = [redacted:password]"),
    "Python": ('client_secret = "abcdef123456"', 'client_secret = "[redacted:secret]"'),
    "Ruby": (":password => 'hunter2'", ":password => '[redacted:password]'"),
    "dsn": ("host=a password=letmein dbname=x", "host=a password=[redacted:password] dbname=x"),
    "connection string": ("Uid=sa;Pwd=hunter2;Enc=1", "Uid=sa;Pwd=[redacted:password];Enc=1"),
    "option": ("run --db-password hunter2 -v", "run --db-password [redacted:password] -v"),
    "option with a sign": ("run --token=abc123def --v", "run --token=[redacted:token] --v"),
    "query": ("GET /a?api_key=abc123def&b=1", "GET /a?api_key=[redacted:key]&b=1"),
    "npmrc": ("//registry.example.org/:_authToken=abc123def", "//registry.example.org/:_authToken=[redacted:token]"),
    "netrc": ("machine h login me password hunter2", "machine h login me password [redacted:password]"),
    "webhook": ("https://hooks.slack.com/services/T0/B0/" + LETTERS, "https://hooks.slack.com/services/[redacted:address]"),
    "signature": ("?sv=1&sig=" + LETTERS + "%3D", "?sv=1&sig=[redacted:address]"),
    "key": (f"a\n{KEY}\nb", "a\n[redacted:private-key]\nb"),
    "encrypted key": (
        f"{BEGIN}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,1\n\n{BODY}\n{END}",
        "[redacted:private-key]",
    ),
    "key of OpenSSH": (KEY.replace("RSA", "OPENSSH"), "[redacted:private-key]"),
    "key in YAML": ("k:\n    " + KEY.replace("\n", "\n    "), "k:\n    [redacted:private-key]"),
    "key in JSON": ('{"k": "' + KEY.replace("\n", "\\n") + '\\n"}', '{"k": "[redacted:private-key]\\n"}'),
    "key without its end": (f"{BEGIN}\n{BODY[:-30]}\nword and word", "[redacted:private-key]\nword and word"),
    "key without its beginning": (f"{KEY.partition(chr(10))[2]}\nb", "[redacted:private-key]\nb"),
    "coloured": ("password: \033[31mhunter2\033[0m", "password: \033[31m[redacted:password]\033[0m"),
}  # fmt: skip


def test_a_credential_is_recognized_by_its_context() -> None:
    """redaction-2: names, headers, URLs and keys; the name is kept, and everything after the value."""
    for text, redacted in IN_CONTEXT.values():
        assert PLAIN.text(text) == redacted, (text, redacted)
        assert PLAIN.data(text.encode()).decode() == redacted, (text, redacted)


UNTOUCHED = [
    "f7c3bc1d808e04732adf679965ccc34ca7ae3441 refs/heads/main",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  file",
    "123e4567-e89b-12d3-a456-426614174000",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4//8/w38GIAXDIBKE0DHxgljNBAAO9TXL0Y4OHwAAAABJRU5ErkJggg==",
    '"integrity": "sha512-z9Z1YPDtJ0n6bXX2cYk1n6dPHG1Rb4p1jk2C3hZp9Vd9h8C8Y6k2u0JgQ4sJ7wq=="',
    "task-0123456789abcdef0123456789abcdef risk-management-of-2026-and-later disk-AbCdEfGh0123456789 eyJ.eyJhbGciOi",
    "half_of_a_word xhf_abcdefghijklmnopqrstuvwxyzabcdefghijkl DnAIzaSyBxxVqKn QUl6YVN5eyJ/eyJhbGciOiJIUzI1NiJ9",
    "token = parser.next()",
    "token = tokens[0]",
    "self.token = token",
    'if token == "identifier": pass',
    'token = "if"',
    'kind = Token("keyword", value="return")',
    "password: str",
    "password: str | None = None",
    "def login(user: str, password: str, token: Token) -> None:",
    "password = getpass.getpass()",
    "connect(user=user, password=password, token=self.token)",
    "secret = os.environ['SECRET']",
    'api_key=os.getenv("API_KEY"),',
    "let token: u64 = 5;",
    "const token: Uint8Array = get()",
    "token_count: 12345",
    "max_tokens=4096",
    "usage: tokens: 1234 in, 567 out",
    "--token-file PATH   read the token from PATH",
    "--password PASSWORD  the password to use",
    "--password-stdin",
    "--api-key <key>",
    "# pass 12\n# fail 0\npass: 12, fail: 0",
    "tokenizer: WordPiece30k",
    "secretary: miller42",
    "PASSWORD=$DB_PASSWORD",
    "TOKEN=${TOKEN:-}",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "password: {{ vault_password }}",
    'password = "<password>"',
    'api_key: "your-api-key"',
    "password: ********",
    "PWD=/home/ada/project",
    "SECRET_FILE=/run/secrets/db",
    "private_key_path: /etc/ssl/key9.pem",
    "token: null, secret: true, password: None",
    '"token": "identifier"',
    "permissions:\n  id-token: write",
    "https://example.com:8080/a@b",
    "ssh://git@github.com/a/b",
    "git@github.com:a/b.git",
    "postgres://user:$PASSWORD@host/db",
    "cookie: str",
    "class='sk-container-id-1-toggleable__label'",
    "task-admin-dashboard-component-for-everybody task-proj-overview-of-all-the-things-that-we-have-to-do",
    "task_live_reloadingofeverything disk_test_performance1",
    "mynpm_config_registry_setting_of_everything",
    "ASIAPACIFICREGIONALOFFICE",
    'if "-----BEGIN RSA PRIVATE KEY-----" in text:',
    f"-----BEGIN CERTIFICATE-----\n{BODY}\n-----END CERTIFICATE-----",
    "bypass: level2 compass=north1 keyboard: qwerty12",
    "author: Ada <ada@example.com>",
    "monkey=banana12345 hotkey: ctrl+k1234567",
    "Bearer of good news, all of them",
]


def test_ordinary_text_is_unchanged() -> None:
    """redaction-3: code, types, hashes, placeholders, references, numbers and paths."""
    for text in UNTOUCHED:
        assert KNOWING.text(text) == text, text
        assert KNOWING.data(text.encode()) == text.encode(), text


SPELLINGS = {
    "as it is": lambda value: value,
    "in an address": lambda value: quote(value, safe=""),
    "in a form": lambda value: quote(value, safe="").replace("%20", "+"),
    "in JSON": lambda value: value.encode("ascii", "backslashreplace").decode().replace("\\xe9", "\\u00e9"),
    "in base64": lambda value: base64.b64encode(value.encode()).decode(),
    "in the middle of base64": lambda value: base64.b64encode(f"u:{value}\n".encode()).decode(),
    "one further": lambda value: base64.b64encode(f"us:{value}:".encode()).decode(),
    "in base64 for addresses": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
}


@pytest.mark.parametrize("spell", SPELLINGS.values(), ids=SPELLINGS.keys())
@pytest.mark.parametrize("value", [PASSPHRASE, TOKEN])
def test_a_value_of_the_environment_is_recognized_in_its_usual_encodings(value: str, spell: object) -> None:
    """redaction-4: without any name or format."""
    assert callable(spell)
    text = spell(value)
    redacted = KNOWING.text(f"so {text} so")
    assert "[redacted:environment]" in redacted
    assert text[4:-4] not in redacted
    assert KNOWING.data(f"so {text} so".encode()).decode() == redacted


def test_secret_variables_are_chosen_by_name() -> None:
    """redaction-4: by their names; passwords in URLs whatever the name; paths of credential files are not secret."""
    environment = {
        "GITHUB_TOKEN": "value-01",
        "AWS_SECRET_ACCESS_KEY": "value-02",
        "ANTHROPIC_API_KEY": "value-03",
        "DB_PASS": "value-04",
        "MYSQL_PWD": "value-05",
        "DATABASE_URL": "postgres://user:value-06@host/db",
        "REDISCLI_AUTH": "value-07",
        "SSHPASS": "value-08",
        "npm_config__authToken": "value-09",
        "STORAGE_ACCOUNT_KEY": "value-10",
        "GOOGLE_APPLICATION_CREDENTIALS": "/path/key.json",
        "PWD": "/work",
        "OLDPWD": "/work",
        "TOKEN_FILE": "/run/token",
        "SSH_AUTH_SOCK": "/run/agent",
        "GIT_ASKPASS": "/usr/bin/askpass",
        "HOME": "/home/ada",
        "KEYBOARD": "querty",
    }
    assert secret_values(environment) == [f"value-{number:02}" for number in range(1, 11)]


def test_short_values_and_lines_of_long_ones() -> None:
    """redaction-4: shorter values are ignored; each long line is searched for, very long ones in pieces."""
    assert Redactor(["secret1"]).text("a secret1 b") == "a secret1 b"
    lines = Redactor(["{\n  first-long-line-of-it\n  second-long-line-of-it\n}"])
    assert lines.text("x second-long-line-of-it y") == "x [redacted:environment] y"
    very_long = "".join(random.Random(1).choices(LETTERS, k=5000))
    assert set(very_long) & set(Redactor([very_long]).text(very_long).replace("[redacted:environment]", "")) == set()


def test_a_value_that_is_part_of_our_marks_is_handled() -> None:
    """redaction-5: redacted text is not changed again."""
    redactor = Redactor(["redacted", "password", "environment"])
    once = redactor.text("password=hunter2 environment redacted")
    assert once == "password=[redacted:password] [redacted:environment] [redacted:environment]"
    assert redactor.text(once) == once


PIECES = [
    *SHAPES.values(),
    *(text for text, _ in IN_CONTEXT.values()),
    *UNTOUCHED,
    *(PASSPHRASE, TOKEN, quote(TOKEN), KEY, BODY),
    *("password=", "token: ", "--token ", '"', "'", "\n", "\r\n", " ", "\t", "\\n", "://", "u:", "@h"),
    *("[redacted:token]", "é", "\x00", "\x1b[1m"),
]


def any_text(chance: random.Random, count: int = 12) -> str:
    return "".join(chance.choice(PIECES) + chance.choice(["", "", " ", "\n", "=", ":"]) for _ in range(count))


def test_redaction_is_idempotent_and_equal_for_bytes() -> None:
    """redaction-5: idempotent, in text and in bytes."""
    for seed in range(150):
        text = any_text(random.Random(seed))
        once = KNOWING.text(text)
        assert KNOWING.text(once) == once, seed
        data = KNOWING.data(text.encode())
        assert KNOWING.data(data) == data, seed


STREAMS = [
    f"a {SHAPES['github']} b\nDB_PASSWORD=hunter2\n>>> ",
    f'say {PASSPHRASE} and {{"password": "correct horse battery", "x": 1}}\r\nCookie: a=bcdef; c=dddd\r\nend',
    f"key:\n{KEY}\nafter\n",
    f"key:\n{KEY[:-60]}",
    IN_CONTEXT["encrypted key"][0] + "\nokay then words\n",
    IN_CONTEXT["key without its beginning"][0],
    IN_CONTEXT["key in JSON"][0],
    "see -----BEGIN PRIVATE KEY----- there\n-----BEGIN PRIVATE KEY-----\nhello\nthis is more TOKEN=abc12345\n",
    f"curl https://bob:s3cr3t@h/x --token abc123DEF456xyz --password 's3cr3t w0rd' {JWT}",
    "1%\r2%\rTOKEN=abc12345\rdone\r\n\r\n",
    f"\x1b[1mpassword\x1b[0m: \x1b[31mhunter2\x1b[0m {quote(TOKEN)} {TOKEN}",
]


@pytest.mark.parametrize("text", STREAMS, ids=lambda text: text[:20])
def test_no_border_between_pieces_leaks_a_credential(text: str) -> None:
    """redaction-6: the output equals that of the whole text, wherever it is split, also byte by byte."""
    data = text.encode()
    whole = KNOWING.data(data)
    assert whole != data
    for border in range(len(data) + 1):
        stream = StreamRedactor(KNOWING)
        assert stream.feed(data[:border]) + stream.feed(data[border:]) + stream.end() == whole, border
    stream = StreamRedactor(KNOWING)
    assert b"".join(stream.feed(data[at : at + 1]) for at in range(len(data))) + stream.end() == whole


KEY_LINES = [
    *("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "MIIE" + "aB3/" * 15, "MIIEaB3/aB", "abcd="),
    *("hello", "this is more", "Key: a", "Proc-Type: 4,ENCRYPTED", "\\n", "> ", " ", "TOKEN=abc12345"),
]


def test_lines_that_only_resemble_a_key_are_kept_wherever_they_are_split() -> None:
    """redaction-6: on every patch release of Python, no character is lost next to a split."""
    for seed in range(60):
        chance = random.Random(seed)
        data = "".join(chance.choice(KEY_LINES) + "\n" for _ in range(8)).encode()
        whole = PLAIN.data(data)
        for border in range(len(data) + 1):
            stream = StreamRedactor(PLAIN)
            assert stream.feed(data[:border]) + stream.feed(data[border:]) + stream.end() == whole, (seed, border)


REPEATED_GROUP = re.compile(r"\)(?:[*+?]|\{\{?[0-9]*,?[0-9]*\}\}?)\+")
A_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")


def test_no_expression_repeats_a_group_possessively() -> None:
    """redaction-6: before CPython 3.11.5 such a repeat keeps what its last, failed iteration matched (gh-106052)."""
    assert REPEATED_GROUP.search(A_CLASS.sub("x", r"(?:a[)]b?c){{0,2}}+"))
    for path in Path(coretools.__file__).parent.rglob("*.py"):
        text = path.read_text()
        if not re.search(r"[*+?}]\+", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = REPEATED_GROUP.search(A_CLASS.sub("x", node.value))
                assert found is None, f"{path}:{node.lineno}: write (?>(?:...)*) for (?:...)*+"


def test_random_pieces_of_random_output_leak_nothing() -> None:
    """redaction-6: wherever it is split."""
    for seed in range(100):
        chance = random.Random(seed)
        words = [
            *SHAPES.values(),
            KEY,
            PASSPHRASE,
            TOKEN,
            "password='s3cr3t w0rd'",
            "Authorization: Bearer hunter2-0123",
        ]
        text = "".join(f"{chance.choice(words)}{chance.choice([' ', chr(10), ' and then '])}" for _ in range(8))
        stream, data, out = StreamRedactor(KNOWING), text.encode(), b""
        while data:
            size = chance.randint(1, 60)
            out += stream.feed(data[:size])
            data = data[size:]
        assert out + stream.end() == KNOWING.data(text.encode()), seed


def test_a_prompt_and_complete_lines_are_not_buffered() -> None:
    """redaction-6: only an unfinished word is buffered; a prompt is passed on."""
    stream = StreamRedactor(PLAIN)
    assert stream.feed(b"listening on 80\n>>> ") == b"listening on 80\n>>> "
    assert stream.feed(b"pri") == b""
    assert stream.feed(b"nt(1)\n") == b"print(1)\n"
    assert stream.feed(b"Password: ") == b"Password: "
    assert stream.feed(b"hunter2\n") == b"[redacted:password]\n"
    assert stream.feed(b"Continue?") == b"Continue?"
    assert stream.feed(b"\nPassword:") == b"\nPassword:"
    assert stream.feed(b"hunter2\n") == b"[redacted:password]\n"


def test_a_value_with_a_blank_is_buffered_from_its_first_word_on() -> None:
    """redaction-6: a value may look like ordinary words."""
    stream = StreamRedactor(KNOWING)
    first, second = PASSPHRASE.encode().split()
    assert stream.feed(b"it is " + first + b" ") == b"it is "
    assert stream.feed(second + b" you") == b"[redacted:environment] "


@pytest.mark.parametrize("unit", [b"x", b"x ", b"A" * 64 + b"\n", b'password="', b"eyJaaaaaaaaaaaa.", b"TOKEN=a1b2c3"])
def test_the_buffer_is_bounded(unit: bytes) -> None:
    """redaction-6: all output but a limited part is passed on or redacted."""
    stream = StreamRedactor(PLAIN)
    for _ in range(40):
        stream.feed((unit * 4096)[:4096])
        assert len(stream._buffer) <= 3 * MAX_HELD_BYTES


def test_a_credential_longer_than_the_buffer_is_removed() -> None:
    """redaction-6: to the end of its line."""
    stream = StreamRedactor(PLAIN)
    data = b"TOKEN=" + b"a1b2c3d4" * 20_000 + b"\nnext\n"
    out = b"".join(stream.feed(data[at : at + 999]) for at in range(0, len(data), 999)) + stream.end()
    assert b"a1b2c3d4" not in out
    assert out.startswith(b"TOKEN=[redacted:")
    assert out.endswith(b"\nnext\n")


def test_four_megabytes_of_hostile_text_end_in_time() -> None:
    """redaction-7: the work is linear; each unit makes a careless expression backtrack exponentially."""
    units = [
        *("ghp_", "eyJaaaaaaaaaa.", "eyJ", "token=", "token='a token=\"b ", "password ", "://a:", "a:b", "bearer "),
        *("-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n", "A" * 64 + "\n", "authorization: ", "login "),
        *("a", " ", '"', "\\", "-", "token", "[redacted:x]", TOKEN, "--a-token ", "?sig=", "cookie: a=", "\n", "\r"),
        *(
            "PASSWORD=ab ",
            "\x1b[",
            "\x1b",
            "passpasspass: ",
            "sk-",
            "sk-T3BlbkFJ",
            "hf_",
            "AIzaSy",
            ".eyJ",
            "eyJeyJ.eyJ.",
        ),
    ]
    share = 4 * 1024 * 1024 // len(units)
    text = "".join(unit * (share // len(unit)) for unit in units)
    assert len(KNOWING.text(text)) > 0
    stream = StreamRedactor(KNOWING)
    data = text.encode()
    # The same expressions, in pieces: a quarter of each unit is enough.
    pieces = [data[at : at + 65536] for at in range(0, len(data), 4 * 65536)]
    assert sum(len(stream.feed(piece)) for piece in pieces) + len(stream.end()) > 0


def test_a_gap_is_extended_to_whole_lines() -> None:
    """redaction-8: no part of a cut token is left, and the dropped bytes are still counted."""
    excerpter = Excerpter(4000)
    data = b"first\n" + f"{SHAPES['github']} ".encode() * 400 + b"\nlast\n"
    excerpter.feed(data)
    redacted = PLAIN.text(drop_partial_lines(excerpter.excerpt()).text())
    assert redacted == f"first\n\n[... {len(data) - 11} bytes left out ...]\nlast\n"
    whole = Excerpt(b"a ghp", b"_b c", 0)
    assert drop_partial_lines(whole) is whole


COMMANDS = {
    "attached": (["mysql", "-u", "root", "-phunter2", "db"], "mysql -u root '-p[redacted:password]' db"),
    "pair": (["curl", "-u", "bob:x", "https://a:b@c/d"], "curl -u 'bob:[redacted:password]' 'https://a:[redacted:password]@c/d'"),
    "header": (["curl", "-H", "Authorization: Bearer x"], "curl -H 'Authorization: Bearer [redacted:header]'"),
    "own header": (["curl", "--header=X-Token: x"], "curl '--header=X-Token: [redacted:header]'"),
    "other header": (["curl", "-H", "Accept: x"], "curl -H 'Accept: x'"),
    "variable": (["env", "API_TOKEN=x", "A=b", "make"], "env 'API_TOKEN=[redacted:token]' A=b make"),
    "option": (["gh", "--password", "x", "--token-file", "f"], "gh --password '[redacted:password]' --token-file f"),
    "option with a sign": (["gh", "--secret=x"], "gh '--secret=[redacted:secret]'"),
    "nothing after it": (["gh", "--password"], "gh --password"),
    "shell": (["sh", "-c", "mysql -px; A_TOKEN=x"], "sh -c 'mysql -p[redacted:password] A_TOKEN=[redacted:token]'"),
    "ports": (["docker", "run", "-p", "80:80", "x"], "docker run -p 80:80 x"),
    "login": (["docker", "login", "-p", "x"], "docker login -p '[redacted:password]'"),
    "redis": (["redis-cli", "-a", "x"], "redis-cli -a '[redacted:password]'"),
    "npm": (["npm", "config", "set", "//h/:_authToken=x"], "npm config set '//h/:_authToken=[redacted:token]'"),
    "wrapped": (["sudo", "-u", "me", "sshpass", "-p", "x", "ssh"], "sudo -u me sshpass -p '[redacted:password]' ssh"),
    "ordinary": (["pytest", "-k", "token and no secret", "-p", "no:x"], "pytest -k 'token and no secret' -p no:x"),
    "controls": (["echo", "a\x1b[31m\nb\u202e"], "echo 'a\\x1b[31m\\nb\\u202e'"),
    "nul": (["a\0b"], "'a\\x00b'"),
    "surrogate": (["\udcff"], "'\\udcff'"),
}  # fmt: skip


@pytest.mark.parametrize(("argv", "line"), COMMANDS.values(), ids=COMMANDS.keys())
def test_a_command_line_contains_no_credential(argv: list[str], line: str) -> None:
    """redaction-9: by the role of each word; one line, control characters escaped."""
    assert redacted_command_line(argv) == line


def test_a_command_line_is_bounded() -> None:
    """redaction-9: words, characters of a word and of the line; the rest is counted."""
    assert (
        redacted_command_line(["echo", "x" * 1000])
        == f"echo {'x' * MAX_WORD_CHARACTERS}[... 700 more characters ...]".replace("echo x", "echo 'x") + "'"
    )
    line = redacted_command_line(["a"] * 500)
    assert line.endswith(" [... 400 more words ...]")
    assert len(redacted_command_line(["\x1b" * 300] * 90)) < MAX_LINE_CHARACTERS + 50
    assert "hunter2" not in redacted_command_line(["x" * 20_000 + " PASSWORD=hunter2"])
    assert redacted_command_line([]) == ""


def test_a_command_line_is_redacted_with_the_known_values() -> None:
    """redaction-9: those of the redactor that it is given."""
    assert redacted_command_line(["echo", f"({PASSPHRASE})"], KNOWING) == "echo '([redacted:environment])'"


def test_a_log_record_is_redacted_with_its_traceback() -> None:
    """redaction-10: message, arguments, and the text of an exception; still one line a message."""
    try:
        int(f"bad {PASSPHRASE}\nDB_PASSWORD=hunter2")
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
    message = "got %s\nand %s"
    record = logging.LogRecord("x", logging.ERROR, "f", 1, message, (SHAPES["github"], KEY), found)
    text = TextFormatter(KNOWING).format(record)
    first, *rest = text.split("\n")
    assert "got [redacted:github]\\nand [redacted:private-key]" in first
    assert "bad [redacted:environment]" in text
    assert "DB_PASSWORD=[redacted:password]" in text
    assert "hunter2" not in text
    assert rest[0].startswith("Traceback")
