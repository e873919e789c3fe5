"""Why a language server gave no answer. Tools answer by syntax and text then, and say this reason."""


class NoAnswer(Exception):
    """No server, or none that answered. Its text is the reason, for the reader of the answer."""
