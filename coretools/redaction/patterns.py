"""Find credentials by their format alone: issued tokens, private keys, HTTP headers, URLs.

Sources of the formats: the issuers' own documentation and the rules of gitleaks (config/gitleaks.toml), read
2026-11-22; the expressions are our own. Every expression begins with a literal or at the start of a run, repeats are
possessive or bounded, and no repeat is nested in another over the same characters: the work is linear in the length
of the text. A group is repeated in an atomic group, `(?>(?:...)*)`: before CPython 3.11.5 a possessive repeat of a
group keeps what its last, failed iteration matched (gh-106052).
"""

import re
from collections.abc import Iterator
from functools import cache

from coretools.redaction.private_keys import find_private_keys
from coretools.redaction.spans import Span, compiled, merge_overlapping, overwritten

_WORD = "[A-Za-z0-9_-]"
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
"""A token begins a word, or follows an escape: a line break in JSON is `\\n`, a colon in a URL `%3A`."""

_TOKENS = {
    "aws": r"AKIA[A-Z0-9]{16}+(?![A-Za-z0-9_])|(?:ASIA|ABIA|ACCA)(?=[A-Z]{0,15}[0-9])[A-Z0-9]{16}+(?![A-Za-z0-9_])",
    "github": r"gh[pousr]_[A-Za-z0-9_]{30,}+(?>(?:\.[A-Za-z0-9_-]{10,}+){0,2})|github_pat_[A-Za-z0-9_]{30,}+",
    "gitlab": r"gl(?:pat|ptt|dt|rtr?|cbt|ft|imt|agent|oas|soat|ffct|wt)-[A-Za-z0-9_.-]{20,}+"
    rf"|GR1348941{_WORD}{{20,}}+",
    "slack": r"xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{20,}+",
    "model": r"sk-(?:ant|proj|svcacct|admin|or|lf|None)-[A-Za-z0-9_-]{16,}+|sk-[A-Za-z0-9]{20,}+"
    r"|(?:hf|gsk|r8)_[A-Za-z0-9]{30,}+|(?:xai|pplx)-[A-Za-z0-9]{40,}+",
    "google": rf"AIza{_WORD}{{30,}}+|GOCSPX-{_WORD}{{20,}}+|ya29\.[A-Za-z0-9_.-]{{20,}}+",
    "npm": r"npm_[A-Za-z0-9]{30,}+",
    "pypi": rf"pypi-AgE{_WORD}{{20,}}+",
    "stripe": r"[rs]k_(?:live|test|prod)_[A-Za-z0-9]{10,}+|whsec_[A-Za-z0-9+/=]{20,}+",
    "token": rf"do[opr]_v1_[a-f0-9]{{40,}}+|dckr_[op]at_{_WORD}{{20,}}+|hv[sbr]\.{_WORD}{{20,}}+"
    rf"|SG\.{_WORD}{{16,64}}+\.{_WORD}{{30,}}+|[A-Za-z0-9]{{14}}\.atlasv1\.{_WORD}{{40,}}+"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{50,}+|lin_api_[A-Za-z0-9]{30,}+|shp(?:at|ca|pa|ss)_[0-9a-fA-F]{30,}+"
    rf"|dapi[0-9a-f]{{32}}+|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{{30,}}+|gl(?:c|sa)_[A-Za-z0-9_+/=]{{30,}}+"
    rf"|AT[AC]TT3[A-Za-z0-9_=-]{{60,}}+|NRAK-[A-Z0-9]{{27}}+|dp\.(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{{30,}}+"
    r"|rubygems_[0-9a-f]{40,}+|tskey-[a-z]{2,12}-[A-Za-z0-9-]{20,}+|PMAK-[a-f0-9-]{40,}+|sntry[su]_[A-Za-z0-9_+/=]{40,}+"
    rf"|sbp_[a-f0-9]{{40,}}+|fm[12]_[A-Za-z0-9+/=]{{40,}}+|key-[0-9a-f]{{32}}+(?![0-9a-f])|[0-9]{{8,10}}:AA{_WORD}{{32,}}+"
    r"|cio[A-Za-z0-9]{32}+(?![A-Za-z0-9_])",
}
_EMBEDDED_TOKENS = (
    (("AKIA",), r"(?<![A-Z0-9+/])AKIA[A-Z0-9]{16}+(?![A-Za-z0-9_])", "aws"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"), _TOKENS["github"], "github"),
    (
        ("glpat-", "glptt-", "glcbt-", "glagent-", "glsoat-"),
        r"gl(?:pat|ptt|cbt|agent|soat)-[A-Za-z0-9_.-]{20,}+",
        "gitlab",
    ),
    (("xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-"), r"xox[abeoprs]-[A-Za-z0-9-]{10,}+", "slack"),
    (("sk-ant-",), r"sk-ant-(?:api|admin|oat|sid)[0-9]{2}-[A-Za-z0-9_-]{16,}+", "model"),
    (("sk-proj-", "sk-svcacct-"), r"sk-(?:proj|svcacct)-(?=[A-Za-z_-]{0,40}+[0-9])[A-Za-z0-9_-]{40,}+", "model"),
    (("GOCSPX-",), rf"GOCSPX-{_WORD}{{20,}}+", "google"),
    (("npm_",), _TOKENS["npm"], "npm"),
    (("pypi-AgE",), _TOKENS["pypi"], "pypi"),
    (
        ("k_live_", "k_test_", "k_prod_"),
        r"[rs]k_(?:live|test|prod)_(?=[A-Za-z]{0,40}+[0-9])[A-Za-z0-9]{20,}+",
        "stripe",
    ),
    (("dop_v1_", "doo_v1_", "dor_v1_"), r"do[opr]_v1_[a-f0-9]{40,}+", "token"),
    (("dckr_pat_", "dckr_oat_"), rf"dckr_[op]at_{_WORD}{{20,}}+", "token"),
    (("hvs.", "hvb.", "hvr."), rf"hv[sbr]\.{_WORD}{{20,}}+", "token"),
    (("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[A-Z0-9]{50,}+", "token"),
    (("lin_api_",), r"lin_api_[A-Za-z0-9]{30,}+", "token"),
    (("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{30,}+", "token"),
    (("rubygems_",), r"rubygems_[0-9a-f]{40,}+", "token"),
    (("pscale_",), r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.-]{30,}+", "token"),
    (("T3BlbkFJ",), r"sk-(?=[A-Za-z0-9_-]{16,160}?T3BlbkFJ)[A-Za-z0-9_-]{40,}+", "model"),
    (("sk-or-v1-",), r"sk-or-v1-[0-9a-f]{40,}+", "model"),
    (("hf_",), r"hf_(?=[A-Za-z0-9]{0,33}[A-Z])(?=[A-Za-z0-9]{0,33}[a-z])[A-Za-z0-9]{34,}+", "model"),
    (("AIzaSy",), rf"AIzaSy{_WORD}{{33}}(?!{_WORD})", "google"),
    (("sntrys_", "sntryu_"), r"sntry[su]_[A-Za-z0-9_+/=]{40,}+", "token"),
)
"""Tokens with a prefix so rare that they are recognised inside a word too, as `xghp_...` from a careless `print`: text
that must occur, the expression, and the kind."""

_TOKEN_HINTS = (
    *("akia", "asia", "abia", "acca", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "gl", "gr1348941"),
    *("xox", "xapp-", "sk-", "hf_", "gsk_", "r8_", "xai-", "pplx-", "aiza", "gocspx-", "ya29.", "npm_", "pypi-age"),
    *("k_live_", "k_test_", "k_prod_", "whsec_", "_v1_", "dckr_", "hvs.", "hvb.", "hvr.", "sg.", ".atlasv1."),
    *("age-secret-key-", "lin_api_", "shp", "dapi", "pscale_", "att3", "nrak-", "ctt3", "dp.", "rubygems_", "tskey-"),
    *("pmak-", "sntry", "sbp_", "fm1_", "fm2_", "key-", ":aa", "cio"),
)
"""Every text that an expression of `_TOKENS` matches contains one of these, in lower case; most texts contain none."""

_JWT = (
    r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))eyJ[A-Za-z0-9_-]{8,2048}+\."
    r"(?:eyJ[A-Za-z0-9_-]{4,}+(?>(?:\.[A-Za-z0-9_-]*+){0,3})|[A-Za-z0-9_-]*+(?>(?:\.[A-Za-z0-9_-]++){2,3}))"
)
"""JWS and JWE in compact form (RFC 7515, 7516): the header is `{"...`, hence `eyJ`; a truncated one matches too."""

_EMBEDDED_JWT = (
    r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{1,64}?"
    r"(?P<secret>eyJ[A-Za-z0-9_-]{8,2048}+\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]{16,}+)"
)
"""A complete one inside a word."""

_ADDRESS = r"://[^\s/:@\"'<>`\x00]{0,256}+:(?P<secret>(?![$<{*%][^@]{0,80}@)[^\s/\"'<>`\x00]{1,512})@"
"""`scheme://user:password@host`; a password that is a reference (`$NAME`, `<password>`) is kept."""

_HEADER = (
    r"(?i:authorization)\\?[\"']?[ \t]*+[:=][ \t]*+\\?[\"']?"
    r"(?:(?i:(?:bearer|basic|token|apikey|api-key|negotiate|aws4-hmac-sha256)[ \t]++)"
    r"(?P<secret>[A-Za-z0-9+/=._~:-]{6,}+)|(?i:digest)[ \t]++(?P<digest>[^\n\r\x00]{8,}+))"
    r"|(?i:\bbearer)[ \t]++(?=[A-Za-z_.~+/=-]{0,200}+[0-9])(?P<bearer>[A-Za-z0-9+/=._~-]{16,}+)"
    r"|(?i:\bcookie)\\?[\"']?[ \t]*+:[ \t]*+\\?[\"']?(?P<cookie>[^\s=;:\"'\\\x00]{1,128}+=[^\n\r\"'\\\x00]{4,}+)"
)
"""Header fields that carry credentials (RFC 9110 part 11, RFC 6265); the scheme is kept."""

_HOOK = (
    r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[A-Za-z0-9+/]{20,}+)"
    rf"|discord(?:app)?\.com/api/webhooks/(?P<discord>[0-9]{{10,24}}+/{_WORD}{{30,}}+)"
    r"|[?&](?:amp;)?(?:sig|X-Amz-Signature)=(?P<signature>[A-Za-z0-9%+/=_-]{16,}+)"
)
_NETRC = r"\blogin[ \t]++[^\s\x00]{1,128}+[ \t]++password[ \t]++(?P<secret>[^\s\x00]++)"

_INNER = (
    (("eyj",), _JWT, "jwt"),
    ((".eyj",), _EMBEDDED_JWT, "jwt"),
    (("://",), _ADDRESS, "password"),
    (("authorization", "bearer", "cookie"), _HEADER, "header"),
    (("hooks.", "webhooks", "sig=", "signature="), _HOOK, "address"),
    (("password",), _NETRC, "password"),
)
"""Text that must occur, the expression, whose one group or whole match is the credential, and its kind."""


@cache
def _tokens() -> re.Pattern[str]:
    named = "|".join(f"(?P<{name}>{expression})" for name, expression in _TOKENS.items())
    return re.compile(f"{_START}(?:{named})", re.ASCII)


def find_credentials(text: str) -> list[Span]:
    """Every credential in the text that its format reveals; sorted and disjoint."""
    small = text.lower()
    spans = [*find_private_keys(text)] if " private key" in small else []
    glued = [
        span
        for beginnings, expression, kind in _EMBEDDED_TOKENS
        if any(beginning in text for beginning in beginnings)
        for span in _inner(text, expression, kind)
    ]
    if any(hint in small for hint in _TOKEN_HINTS):
        spans += _beginning_words(text)
        if glued:  # a token that another is appended to ends where that begins
            spans += _beginning_words(overwritten(text, merge_overlapping(glued), "]"))
    spans += glued
    for hints, expression, kind in _INNER:
        if any(hint in small for hint in hints):
            spans += _inner(text, expression, kind)
    return merge_overlapping(spans)


def _beginning_words(text: str) -> Iterator[Span]:
    for match in _tokens().finditer(text):
        yield Span(*match.span(), match.lastgroup or "token")


def _inner(text: str, expression: str, kind: str) -> Iterator[Span]:
    """The one participating group, or the whole, of every match."""
    for match in compiled(expression).finditer(text):
        yield Span(*match.span(match.lastgroup or 0), kind)
