"""The names of files that suggest a secret, and the format in which each would hold it."""

import re
from functools import lru_cache

CACHED_NAMES = 8192
"""Names whose verdict is cached; a walk meets the same ones repeatedly."""

GIT_FORMAT = "git"
"""Format of the files of a git directory, and of configurations by their names."""

ANY_CONFIGURATION = "configuration"
"""Format of all other files whose content is shown: any may be included by a configuration of git."""

_ENDINGS = {
    **dict.fromkeys(("pem", "key", "ppk", "asc", "gpg", "pgp", "p8", "pk8", "pkcs8"), "key"),
    **dict.fromkeys(("openssh", "rsa", "der", "priv", "ovpn"), "key"),
    **dict.fromkeys(("p12", "pfx", "jks", "jceks", "bks", "keystore", "kdbx", "kdb"), "store"),
    "env": "environment",
    "tfstate": "state",
    "tfvars": "settings",
    "kubeconfig": "kube",
    "json": "account",
}
"""Formats by file extension."""

_NAMES = {
    **dict.fromkeys((".npmrc", ".yarnrc", ".yarnrc.yml"), "npm"),
    **dict.fromkeys(("pip.conf", "pip.ini"), "address"),
    **dict.fromkeys((".netrc", "_netrc"), "netrc"),
    **dict.fromkeys((".pgpass", ".htpasswd", ".vault-token"), "lines"),
    **dict.fromkeys(("settings.xml", "settings-security.xml"), "maven"),
    **dict.fromkeys((".terraformrc", "terraform.rc", "credentials.tfrc.json", "terraform.tfvars.json"), "settings"),
    **dict.fromkeys((".pypirc", ".my.cnf", ".s3cfg", ".boto", "credentials.toml"), "settings"),
    **dict.fromkeys(("secrets.json", "auth.json", "local.settings.json", "hosts.yml"), "settings"),
    **dict.fromkeys(("secrets.toml", "secrets.yml", "secrets.yaml", "credentials.json", "token.json"), "settings"),
    **dict.fromkeys(("client_secret.json", "client_secrets.json", ".sentryclirc", ".databrickscfg"), "settings"),
    ".renviron": "environment",
    "application_default_credentials.json": "settings",
    "terraform.tfstate.backup": "state",
    "gradle.properties": "properties",
    ".dockercfg": "docker",
    "nuget.config": "nuget",
    ".mylogin.cnf": "any",
    **dict.fromkeys(("kubeconfig", "kube.config", "kubeconfig.yaml", "kubeconfig.yml", "kubeconfig.json"), "kube"),
    ".envrc": "environment",
    **dict.fromkeys((".gitmodules", ".lfsconfig"), GIT_FORMAT),
}

_IN_DIRECTORY = {
    (".docker", "config.json"): "docker",
    (".kube", "config"): "kube",
    (".aws", "credentials"): "settings",
    (".aws", "config"): "settings",
    (".cargo", "credentials"): "settings",
    (".gem", "credentials"): "settings",
    (".bundle", "config"): "bundle",
}
"""Names that suggest a secret only in a directory of this name."""

_PARENTS = frozenset(parent for parent, _ in _IN_DIRECTORY)

_ONLY_THERE = frozenset(name for _, name in _IN_DIRECTORY)

_KEY_NAME = re.compile(
    r"id_(?:rsa|dsa|ecdsa|ed25519)|ssh_host_|identity$|[^.]*(?:key|[_-](?:rsa|dsa|ecdsa|ed25519))$"
    r"|.*private[._-]?key|.*\.(?:key|pem)[._~-]"
)

_ENVIRONMENT_NAME = re.compile(
    r"\.(?:env|dev\.vars)(?![a-z0-9])|.*\.env(?:~|[._-](?:bak|old|orig|save|backup)$)"
    r"|env(?:[._-](?:prod(?:uction)?|stag(?:e|ing)|dev(?:elopment)?|test(?:ing)?|local|live|private|secrets?|ci|qa|uat)){1,3}$"
)

_ACCOUNT_NAME = re.compile(r".*(?:service|account|credential|gcp|gcloud|firebase|adminsdk|key|[0-9a-f]{12})")

_TEMPLATE_NAME = re.compile(r".*(?:^|[._-])(?:example|sample|template|dist|tmpl|tpl|defaults?|schema|vault)(?:$|[._-])")
"""Templates, and encrypted files (`.env.vault`)."""


@lru_cache(CACHED_NAMES)
def secret_format(name: str, parent: str = "") -> str:
    """The secret format that this name suggests, in a directory named `parent`; "" for nearly all.

    No directory is exempt: a command could move a secret into it.
    """
    lower = name.lower()
    by_name = _NAMES.get(lower) or _IN_DIRECTORY.get((parent.lower(), lower))
    if by_name:
        return by_name
    by_ending = _by_several(lower) or _ENDINGS.get(lower.rpartition(".")[2]) or _by_beginning(lower)
    if by_ending == "account":
        return by_ending if _ACCOUNT_NAME.match(lower) else ""
    if by_ending in ("key", "store"):
        return by_ending
    return "" if _TEMPLATE_NAME.match(lower) else by_ending


def _by_several(lower: str) -> str:
    """By more than the extension: `.env.local`, `x.tfvars.json`, a backup."""
    if _ENVIRONMENT_NAME.match(lower):
        return "environment"
    if lower.endswith(".tfvars.json"):
        return "settings"
    if lower.startswith((".gitconfig", "gitconfig")):
        return GIT_FORMAT
    if lower.startswith(".git-credentials"):
        return "git-credentials"
    return "state" if ".tfstate." in lower else ""


def _by_beginning(lower: str) -> str:
    return "key" if _KEY_NAME.match(lower) and not lower.endswith(".pub") else ""


def secret_format_of(relative: str) -> str:
    """The same for a path."""
    above, _, name = relative.rpartition("/")
    # Most names mean the same everywhere; cache them once.
    return secret_format(name, above.rpartition("/")[2] if name.lower() in _ONLY_THERE else "")


def is_significant_directory(directory_name: str) -> bool:
    """Whether some name suggests a secret only in a directory of this name."""
    return directory_name.lower() in _PARENTS
