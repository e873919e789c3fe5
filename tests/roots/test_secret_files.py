"""Which names are suspect, and which contents are secrets: made by programs that create such files, or written out."""

import base64
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from coretools.roots.secret_formats import HEAD_BYTES, is_settled, secret_in
from coretools.roots.secret_names import is_significant_directory, secret_format, secret_format_of

B64 = base64.b64encode(bytes(range(48))).decode()
KEY = f"-----BEGIN PRIVATE KEY-----\n{B64}\n-----END PRIVATE KEY-----\n"
CERTIFICATE = KEY.replace("PRIVATE KEY", "CERTIFICATE")
BAG = b"Bag Attributes\n    friendlyName: x\nKey Attributes: <No Attributes>\n"


def of(path: str, content: bytes | str) -> str:
    """The kind of secret in a file of this path and content."""
    kind = secret_format_of(path)
    data = content if isinstance(content, bytes) else content.encode()
    return secret_in(kind, data) if kind else ""


SECRETS: list[tuple[str, str | bytes]] = [
    ("server.pem", KEY),
    ("server.pem", CERTIFICATE * 3 + KEY),
    ("server.pem", BAG + KEY.encode()),
    ("server.pem", KEY.replace("\n", "\r\n")),
    ("server.pem", KEY.encode("utf-16")),
    ("server.PEM", KEY),
    ("server.pem.bak", KEY),
    ("server.key~", KEY),
    ("tls.key", KEY.replace("PRIVATE", "RSA PRIVATE")),
    ("tls.key", KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")),
    ("tls.key", KEY.replace("PRIVATE KEY-----\n", "DSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n", 1)),
    ("tls_key", KEY),
    ("signing-private-key.txt", KEY),
    ("id_rsa", KEY.replace("PRIVATE", "OPENSSH PRIVATE")),
    ("id_ed25519.old", KEY.replace("PRIVATE", "OPENSSH PRIVATE")),
    ("deploy_ed25519", KEY.replace("PRIVATE", "OPENSSH PRIVATE")),
    ("ssh_host_ecdsa_key", KEY.replace("PRIVATE", "EC PRIVATE")),
    ("secring.asc", f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{B64}\n=abcd\n"),
    ("putty.ppk", "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\n"),
    ("age.key", "# created: 2026\nAGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQQ\n"),
    ("client.ovpn", f"client\n<key>\n{KEY}</key>\n"),
    ("static.key", "-----BEGIN OpenVPN Static key V1-----\n0123456789abcdef\n"),
    ("ssh2.priv", f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{B64}\n"),
    ("a.key", b"(11:private-key(3:rsa(1:n257:"),
    ("trust.jks", b"\xfe\xed\xfe\xed\0\0\0\2"),
    ("trust.jceks", b"\xce\xce\xce\xce\0\0\0\2"),
    ("android.keystore", b"\xfe\xed\xfe\xed\0\0\0\2"),
    ("old.bks", b"\0\0\0\2\0\0\0\x14" + bytes(20)),
    ("vault.kdbx", b"\x03\xd9\xa2\x9a\x67\xfb\x4b\xb5"),
    ("secret.gpg", b"\x95\x03\xbe\x04" + bytes(80)),
    ("secret.gpg", b"\xc5\x58\x04" + bytes(80)),
    (".env", "A=1\n"),
    (".env", "\n# comment\n\nexport DB_PASSWORD='x'\n"),
    (".env", "A=1\n".encode("utf-16")),
    (".env", "\ufeffA=1\n"),
    (".env", "URL=https://$HOST/path\n"),
    (".env", "MY-TOKEN=x\n"),
    (".env", "TOKEN: x\n"),
    (".env", "'TOKEN'=x\n"),
    (".env", 'TOKEN="\nx\n"\n'),
    (".env", "# comment\rTOKEN=x\r"),
    (".env", "A=1\n".encode("utf-16-le")),
    (".env", "A=1\n".encode("utf-32")),
    (".env", "PASSWORD='#x'\n"),
    (".env", '$env:TOKEN="x"\n'),
    (".envrc", "set -a; TOKEN=x\n"),
    (".envrc", "A=$X; TOKEN=x\n"),
    (".env.local", "A=1"),
    (".env-prod", "A=1"),
    ("prod.env", "A = x"),
    (".dev.vars", "API_KEY=x\n"),
    (".dev.vars.production", "API_KEY=x\n"),
    ("prod.env.bak", "A=1\n"),
    (".env~", "A=1\n"),
    (".Renviron", "GITHUB_PAT=x\n"),
    ("x.auto.tfvars.json", '{"db_password": "x"}'),
    ("terraform.tfstate.1700000000.backup", '{"resources": [{"type": "x"}]}'),
    (".streamlit/secrets.toml", 'password = "x"\n'),
    ("secrets.yml", "production:\n  password: x1\n"),
    ("client_secret.json", '{"installed": {"client_secret": "x"}}'),
    ("token.json", '{"refresh_token": "1//x"}'),
    ("credentials.json", '{"installed": {"client_secret": "x"}}'),
    (".sentryclirc", "[auth]\ntoken=x\n"),
    (".databrickscfg", "[DEFAULT]\ntoken = x\n"),
    ("config/master.key", "0123456789abcdef0123456789abcdef"),
    ("config/credentials/production.key", "0123456789abcdef0123456789abcdef\n"),
    (".envrc", "use flake\nexport TOKEN=x\n"),
    (".npmrc", "//registry.example/:_authToken=npm_0123\n"),
    (".npmrc", "_auth = dXNlcjpwYXNz\n"),
    (".npmrc", "registry=https://user:pass@host/\n"),
    (".yarnrc.yml", 'npmAuthToken: "abc"\n'),
    (".pypirc", "[pypi]\nusername = __token__\npassword = hunter\n"),
    ("pip.conf", "[global]\nindex-url = https://u:p@host/simple\n"),
    (".netrc", "machine h login me password secret\n"),
    (".netrc", "machine h\n  login me\n  password secret\n"),
    (".git-credentials", "https://me:token@github.com\n"),
    (".git-credentials", "https://ghp_0123456789012345678901234567890123456789@github.com\n"),
    (".pgpass", "*:*:*:*:x\n"),
    (".htpasswd", "me:$apr1$x\n"),
    (".vault-token", "s.abc\n"),
    (".my.cnf", "[client]\npassword=x\n"),
    (".docker/config.json", '{"auths": {"h": {"auth": "dTpw"}}}'),
    (".dockercfg", '{"h": {"auth": "dTpw"}}'),
    (".aws/credentials", "[default]\naws_secret_access_key = wJalrXUtnFEMI\n"),
    (".kube/config", "users:\n- name: x\n  user:\n    token: abc\n"),
    ("dev.kubeconfig", "    client-key-data: LS0tLS1CRUdJTg==\n"),
    (".cargo/credentials.toml", '[registry]\ntoken = "cio123"\n'),
    (".gem/credentials", "---\n:rubygems_api_key: rubygems_abc\n"),
    (".bundle/config", 'BUNDLE_GEMS__EXAMPLE__COM: "me:secret"\n'),
    ("hosts.yml", "github.com:\n    oauth_token: gho_x\n"),
    (".terraformrc", 'credentials "app.terraform.io" {\n  token = "abc"\n}\n'),
    ("prod.tfstate", '{"version": 4, "resources": [{"mode": "managed"}]}'),
    ("prod.tfstate", '{"version": 4, "outputs": {"password": {"value": "x"}}}'),
    ("prod.tfvars", 'db_password = "x"\n'),
    ("gradle.properties", "ossrhPassword=secret\n"),
    ("settings.xml", "<settings><server><password>secret</password></server></settings>"),
    ("secrets.json", '{"Db:ConnectionString": "Server=x;Pwd=y"}'),
    ("secrets.json", '{"api": {"client_secret": "abcdef"}}'),
    ("auth.json", '{"github-oauth": {"github.com": "0123456789abcdef"}}'),
    ("auth.json", '{"http-basic": {"h": {"username": "u", "password": "p"}}}'),
    ("application_default_credentials.json", '{"refresh_token": "1//abc"}'),
    (
        "my-project-0123456789ab.json",
        '{"type": "service_account", "private_key": "' + KEY.replace("\n", "\\n") + '"}',
    ),
]

NUGET = "<configuration><packageSourceCredentials><mine>{}</mine></packageSourceCredentials>{}</configuration>"
SECRETS += [
    ("nuget.config", NUGET.format('<add key="ClearTextPassword" value="hunter2" />', "")),
    ("NuGet.Config", NUGET.format("<add\n value='AQAAANCMnd8'\n key='Password'/>", "")),
    ("nuget.config", NUGET.format("", '<apikeys><add key="https://host/" value="AQAAANCMnd8" /></apikeys>')),
    ("nuget.config", NUGET.format("", '<config><add key="http_proxy.password" value="AQAAANCMnd8" /></config>')),
    (".mylogin.cnf", bytes(4) + bytes(range(20)) + b"#\x10\0\0\0" + bytes(range(100, 116))),
    ("kube.config", "users:\n- name: x\n  user:\n    token: abc\n"),
    ("kubeconfig.yaml", "users:\n- name: x\n  user:\n    token: abc\n"),
    ("env.production", "TOKEN=x\n"),
    ("env.local", "TOKEN=x\n"),
    ("env-staging.local", "export TOKEN=x\n"),
]

READABLE: list[tuple[str, str | bytes]] = [
    ("cacert.pem", CERTIFICATE * 100),
    ("ca.pem", "# My private key is elsewhere\n" + CERTIFICATE),
    ("id_rsa.pub", "ssh-rsa AAAA"),
    ("public.pem", KEY.replace("PRIVATE", "PUBLIC")),
    ("request.pem", KEY.replace("PRIVATE KEY", "CERTIFICATE REQUEST")),
    ("dh.pem", KEY.replace("PRIVATE KEY", "DH PARAMETERS")),
    ("release.asc", KEY.replace("PRIVATE KEY", "PGP SIGNATURE")),
    ("guide.asc", "= Title\n\nA PRIVATE KEY is secret.\n"),
    ("slides.key", b"PK\x03\x04" + bytes(200)),
    ("pubring.gpg", b"\x99\x01\x0d\x04" + bytes(80)),
    ("message.gpg", b"\x85\x01\x0c\x03" + bytes(80)),
    ("empty.key", b""),
    ("x.p12", b"text"),
    ("monkey", "a file"),
    (".env", ""),
    (".env", "# A=1\n\n"),
    (".env", "A=\nB=''\nC=\"\"\nexport D=$HOME\nE=${TOKEN}\nF= # later\n"),
    (".env.example", "A=1"),
    (".env.sample", "A=1"),
    (".env.template", "A=1"),
    (".env.dist", "A=1"),
    ("default.env", "A=1"),
    (".environment", "A=1"),
    (".envrc", "use flake\nsource_up\n"),
    (".envrc", 'source_url "https://x/y" "sha256-abc+/="\nif [[ $A == b ]]; then\n  source_up\nfi\n'),
    (".env", 'A=\'$HOME\' # c\nB="${TOKEN}"\nC=""\r\n'),
    (".envrc", "export ROOT=$(git rev-parse --show-toplevel)\nA=$(echo -n $X | tr a b)\nB=$(printf %s ${Y})\n"),
    (".npmrc", "package-lock=false\n"),
    (".npmrc", "//registry.example/:_authToken=${NPM_TOKEN}\n"),
    (".yarnrc.yml", "npmAuthToken: ${TOKEN:-}\n"),
    (".pypirc", "[distutils]\nindex-servers = pypi\n[pypi]\nusername = me\n"),
    ("pip.conf", "[global]\nindex-url = https://host/simple\n"),
    (".netrc", "machine h login me\n"),
    (".htpasswd", "# none\n"),
    (".docker/config.json", '{"credsStore": "desktop", "auths": {"h": {}}}'),
    ("config.json", '{"auth": "dTpw"}'),
    (".aws/config", "[default]\nregion = eu\n"),
    (".kube/config", "users:\n- name: x\n  user:\n    exec:\n      command: aws\n"),
    (".bundle/config", 'BUNDLE_PATH: "vendor"\n'),
    ("hosts.yml", "web:\n  hosts:\n    a.example:\n"),
    ("prod.tfstate", '{"version": 4, "outputs": {}, "resources": []}'),
    ("prod.tfvars", 'region = "eu"\ndb_password = "<set me>"\n'),
    ("gradle.properties", "org.gradle.jvmargs=-Xmx2g\nsigning.password=\n"),
    ("settings.xml", "<password>${env.PASSWORD}</password>"),
    ("settings.xml", "<password><![CDATA[]]></password><password><![CDATA[${env.X}]]></password>"),
    ("gradle.properties", "# the password is elsewhere\nsigning.password ${PASSWORD}\nandroid.useAndroidX true\n"),
    (".bundle/config", 'BUNDLE_WITHOUT: "development:test"\nBUNDLE_BUILD__PG: "--with-pg=/a:b"\nBUNDLE_BIN: "C:/x"\n'),
    (".npmrc", "_auth=${USER}:${PASSWORD}\n//h/:_authToken=${A}${B} # both\n"),
    ("secrets.json", '{"password": "", "token": null, "key": "${KEY}"}'),
    ("auth.json", '{"http-basic": {}}'),
    ("token.json", '{"color": {"value": "#fff"}}'),
    ("secrets.yml", "production:\n  password: <%= ENV['X'] %>\n"),
    ("sample.tfvars.json", '{"db_password": "x"}'),
    ("env.d.ts", "declare const A = 1"),
    ("env.local.ts", "A = 1"),
    ("env.py", "A = 1"),
    ("env.example", "A=1"),
    ("env.production", "A=$B\n"),
    (
        "nuget.config",
        NUGET.format('<add key="Username" value="me"/><add key="ClearTextPassword" value="%TOKEN%"/>', ""),
    ),
    (
        "nuget.config",
        '<configuration><packageSources><add key="a" value="https://host/"/></packageSources><apikeys/></configuration>',
    ),
    (".mylogin.cnf", b""),
    ("kube.config", "users:\n- name: x\n  user:\n    exec:\n      command: aws\n"),
    ("x.env.ts", "A = 1"),
    ("md5.key", "0123456789abcdef0123456789abcdef  file\n"),
    ("keys.json", '{"token": "ghp_0123456789012345678901234567890123456789"}'),
    ("accounts.json", '{"type": "service_account", "private_key": "see elsewhere"}'),
    ("id_generator.py", "x = 1"),
    ("main.py", KEY),
    ("package.json", '{"password": "x"}'),
]


@pytest.mark.parametrize(("path", "content"), SECRETS, ids=[f"{n}-{path}" for n, (path, _) in enumerate(SECRETS)])
def test_a_secret_is_known_by_its_content(path: str, content: str | bytes) -> None:
    """secret-files-1"""
    assert of(path, content)
    assert of(f"deep/{path}", content)


@pytest.mark.parametrize(("path", "content"), READABLE, ids=[f"{n}-{path}" for n, (path, _) in enumerate(READABLE)])
def test_files_without_a_secret_are_not_secret(path: str, content: str | bytes) -> None:
    """secret-files-1: certificates, public keys, empty settings, references, templates."""
    assert not of(path, content)


def _openssl(*words: str, directory: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl: not installed")
    subprocess.run(("openssl", *words), cwd=directory, check=True, capture_output=True)


def _made(directory: Path) -> None:
    """Files that openssl creates: private keys as `secret-*`, everything else as `open-*`."""
    run = lambda *words: _openssl(*words, directory=directory)  # noqa: E731
    run("genrsa", "-out", "secret-1.pem", "1024")
    run("genrsa", "-traditional", "-out", "secret-2.pem", "1024")
    run("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "secret-3.pem")
    run("genpkey", "-algorithm", "ed25519", "-out", "secret-4.pem")
    run("pkcs8", "-topk8", "-in", "secret-1.pem", "-passout", "pass:x", "-out", "secret-5.pem")
    run("rsa", "-in", "secret-1.pem", "-aes128", "-traditional", "-passout", "pass:x", "-out", "secret-6.pem")
    for number in "134":
        run(
            "pkcs8",
            "-topk8",
            "-nocrypt",
            "-in",
            f"secret-{number}.pem",
            "-outform",
            "DER",
            "-out",
            f"secret-{number}.der",
        )
    run("rsa", "-in", "secret-1.pem", "-traditional", "-outform", "DER", "-out", "secret-7.der")
    run("ec", "-in", "secret-3.pem", "-outform", "DER", "-out", "secret-8.der")
    run("pkcs8", "-topk8", "-in", "secret-1.pem", "-passout", "pass:x", "-outform", "DER", "-out", "secret-9.der")
    run("req", "-x509", "-new", "-key", "secret-1.pem", "-subj", "/CN=x", "-out", "open-1.pem")
    run("x509", "-in", "open-1.pem", "-outform", "DER", "-out", "open-1.der")
    run("x509", "-in", "open-1.pem", "-text", "-out", "open-2.pem")
    run("req", "-new", "-key", "secret-1.pem", "-subj", "/CN=x", "-out", "open-3.pem")
    run("req", "-new", "-key", "secret-1.pem", "-subj", "/CN=x", "-outform", "DER", "-out", "open-3.der")
    for number, kind in (("1", "rsa"), ("3", "ec")):
        run(kind, "-in", f"secret-{number}.pem", "-pubout", "-out", f"open-4{number}.pem")
        run(kind, "-in", f"secret-{number}.pem", "-pubout", "-outform", "DER", "-out", f"open-4{number}.der")
    run("ecparam", "-name", "prime256v1", "-out", "open-5.pem")
    run("crl2pkcs7", "-nocrl", "-certfile", "open-1.pem", "-outform", "DER", "-out", "open-6.der")
    run(
        "pkcs12", "-export", "-inkey", "secret-1.pem", "-in", "open-1.pem", "-passout", "pass:x", "-out", "secret-1.p12"
    )


def test_keys_of_openssl_are_classified(tmp_path: Path) -> None:
    """secret-files-1: PEM and DER, PKCS #1, #8, #12 and SEC 1, encrypted or not; certificates, public keys."""
    _made(tmp_path)
    judged = {file.name: of(file.name, file.read_bytes()) for file in sorted(tmp_path.iterdir())}
    assert len(judged) > 20
    assert {name for name, found in judged.items() if found} == {name for name in judged if name.startswith("secret")}


@pytest.mark.parametrize("kind", ["rsa", "ecdsa", "ed25519"])
@pytest.mark.parametrize("phrase", ["", "secret"])
def test_keys_of_ssh_keygen_are_classified(tmp_path: Path, kind: str, phrase: str) -> None:
    """secret-files-1"""
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen: not installed")
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", phrase, "-f", tmp_path / f"id_{kind}"], check=True)
    assert of(f"id_{kind}", (tmp_path / f"id_{kind}").read_bytes()) == "a private key"
    assert secret_format(f"id_{kind}.pub") == ""


@pytest.mark.parametrize(
    ("name", "parent", "kind"),
    [
        ("config.json", "", ""),
        ("config.json", ".docker", "docker"),
        ("CONFIG.json", ".Docker", "docker"),
        ("credentials", ".cargo", "settings"),
        ("credentials", "src", ""),
        ("config", ".git", ""),
        ("README.md", "", ""),
        ("keyboard.py", "", ""),
        ("key.py", "", ""),
    ],
)
def test_a_name_is_suspect_by_itself_or_in_its_directory(name: str, parent: str, kind: str) -> None:
    """secret-files-1"""
    assert secret_format(name, parent) == kind
    assert secret_format_of(f"{parent}/{name}" if parent else name) == kind
    assert is_significant_directory(parent) is (parent.lower() in (".docker", ".cargo"))


HOSTILE: dict[str, Callable[[int], str]] = {
    "blanks": lambda n: "-----BEGIN PRIVATE KEY-----" + "\n" * n,
    "headers": lambda n: "-----BEGIN RSA PRIVATE KEY-----\n" + "a: b\n" * (n // 5),
    "begins": lambda n: "-----BEGIN PRIVATE KEY-----\n" * (n // 28),
    "words": lambda n: '"' + "token password secret " * (n // 22),
    "names": lambda n: "password" * (n // 8),
    "signs": lambda n: "password=" * (n // 9),
    "quotes": lambda n: '"password": "' * (n // 13),
    "addresses": lambda n: "://a:" * (n // 5),
    "tabs": lambda n: "\t" * n,
    "equals": lambda n: "a=\n" * (n // 3),
    "braces": lambda n: '"resources":[ ' * (n // 14),
    "tags": lambda n: "<password>" * (n // 10),
    "dollars": lambda n: "A=$(" * (n // 4),
    "printed": lambda n: "A=$(" + "echo -" * (n // 6),
    "printed references": lambda n: "A=$(" + "echo ${" * (n // 7),
    "notes": lambda n: "<password><!--" * (n // 14),
    "sections": lambda n: "<password><![CDATA[" * (n // 19),
    "arrays": lambda n: "[" * n,
    "objects": lambda n: '{"auth":' * (n // 8),
    "members": lambda n: '{"a":[' + '{"auth":1},' * (n // 11) + "0]}",
    "digits": lambda n: '{"auth":' + "1" * n + "}",
    "marks": lambda n: 'token="""' * (n // 9),
    "joined lines": lambda n: "password=" + "\\\n" * (n // 2),
    "hosts": lambda n: "BUNDLE_" + "A_" * (n // 2),
    "accounts": lambda n: '"type": "service_account" private_key PRIVATE KEY ' * (n // 50),
}


@pytest.mark.parametrize("shape", sorted(HOSTILE))
def test_the_classifier_ends_on_any_content(shape: str) -> None:
    """secret-files-2: 1 MiB of hostile content for every format; a quadratic pattern would not end within the test's
    time."""
    data = HOSTILE[shape](1024 * 1024).encode()
    for path in ("a.pem", ".env", ".npmrc", ".netrc", ".dockercfg", "kubeconfig", "settings.xml", "auth.json"):
        of(path, data)
    for path in ("pip.conf", "a.tfstate", ".bundle/config", ".htpasswd", "account.json", "a.p12", "gradle.properties"):
        of(path, data)


@pytest.mark.parametrize("seed", range(50))
def test_random_bytes_break_nothing(seed: int) -> None:
    """secret-files-2"""
    data = os.urandom(seed * 40)
    for head in (b"", b"\x30\x82", b"\x94", b"\xc5", b"\xff\xfe", b"\x30"):
        for path in ("a.pem", ".env", "a.p12", "account.json"):
            of(path, head + data)


def test_what_more_content_can_change_is_read_on() -> None:
    """secret-files-2: a key may follow certificates; a binary file is decided by its beginning."""
    assert not is_settled("key", CERTIFICATE.encode() * 1000)
    assert not is_settled("environment", b"#" * HEAD_BYTES)
    assert is_settled("key", bytes(HEAD_BYTES))
    assert is_settled("store", b"x" * HEAD_BYTES)
