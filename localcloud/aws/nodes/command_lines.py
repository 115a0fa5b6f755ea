"""How a kubelet's arguments arrive at it: through systemd on Amazon Linux, and as one command line on Windows.

Follows systemd 219 of Amazon Linux 2 (`config_parse_environ`, `specifier_printf`, `split`, `cunescape_length` and
`unquote_first_word`), systemd 252 of Amazon Linux 2023 (`env-file.c`), the kubelet's units in amazon-eks-ami, and
"Parsing C++ command-line arguments" (Microsoft C++ documentation).
"""

from __future__ import annotations

import re

from localcloud.aws.nodes.user_data_error import InvalidUserData

SPECIFIERS = "nNpPiIfcrRtUuhsmHbv"
ESCAPES = {"n": "\n", "t": "\t", "s": " ", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"', "'": "'"}


def words_of_unit(extra_args: str) -> list[str]:
    """The kubelet's words on Amazon Linux 2. bootstrap.sh writes the value without quoting into a drop-in of the unit:
    `Environment='KUBELET_EXTRA_ARGS=...'`. If systemd ignores that line, the kubelet starts without labels and taints.
    """
    if not extra_args:
        return []
    line = f"'KUBELET_EXTRA_ARGS={extra_args}'\n".replace("\\\n", " ").partition("\n")[0]
    line = re.sub(rf"%([{SPECIFIERS}%])", lambda found: "%" if found[1] == "%" else "(expanded by systemd)", line)
    # The assignment ends at the next single quote, behind which there may be white space only.
    quoted = re.match(r"'((?:[^'\\]|\\.)*)'(?=\s|$)", line, re.DOTALL)
    if not quoted:
        raise InvalidUserData("systemd ignores KUBELET_EXTRA_ARGS: trailing garbage, or the closing quotation mark is missing")
    value = re.sub(r"\\(.)", lambda found: ESCAPES.get(found[1], found[0]), quoted[1]).partition("=")[2]
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value):
        raise InvalidUserData("systemd ignores KUBELET_EXTRA_ARGS: invalid environment assignment")
    if line[quoted.end() :].strip():
        raise InvalidUserData("systemd cuts KUBELET_EXTRA_ARGS off at a quotation mark")
    return unquoted_words(value)


def words_of_environment_file(flags: list[str]) -> list[str]:
    """The kubelet's words on Amazon Linux 2023, where nodeadm writes the flags into the unit's EnvironmentFile."""
    value = re.sub(r"\\(.?)", lambda found: found[1].replace("\n", ""), " ".join(flags), flags=re.DOTALL)
    if "\n" in value:
        raise InvalidUserData("systemd cuts the kubelet's flags off at a line break")
    return unquoted_words(value)


def unquoted_words(text: str) -> list[str]:
    """Split the value of a variable in ExecStart, and remove quotation marks."""
    words: list[str] = []
    word, quote = None, ""
    rest = iter(text)
    for character in rest:
        if character == "\\":
            word = (word or "") + next(rest, "")
        elif quote and character == quote:
            quote = ""
        elif not quote and character in "'\"":
            word, quote = word or "", character
        elif not quote and character in " \t\n\r":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    if quote == '"':
        raise InvalidUserData("systemd cannot split the kubelet's arguments: unbalanced quoting")
    return words + ([] if word is None else [word])


def windows_words(text: str) -> list[str]:
    """Split the command line of a Windows service. Only spaces and tabs separate words. Of the backslashes before a double
    quote, pairs become one backslash, and one that is left over makes the quote an ordinary character.
    """
    words: list[str] = []
    word, quoted = None, False
    for match in re.finditer(r'(\\*)"|(.)', text, re.DOTALL):
        if match[2] is None:
            word = (word or "") + "\\" * (len(match[1]) // 2)
            if len(match[1]) % 2:
                word += '"'
            else:
                quoted = not quoted
        elif match[2] in " \t" and not quoted:
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + match[2]
    return words + ([] if word is None else [word])
