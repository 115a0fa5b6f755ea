"""A parser for PowerShell scripts that returns their commands and arguments.

Follows PowerShell's "about_Parsing", "about_Quoting_Rules", "about_Special_Characters", "about_Redirection" and
"about_Comments". Commands in blocks are read in order, regardless of conditions. Values that only execution can
determine are empty strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localcloud.aws.nodes.user_data_error import InvalidUserData

SINGLE = "'\u2018\u2019\u201a\u201b"
"""Characters that delimit a verbatim string, including typographic quotes."""
DOUBLE = '"\u201c\u201d\u201e'
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
REDIRECTION = re.compile(r"[1-6*]?>{1,2}(&[12])?")
VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|(env:\w+|\w+|\?|\$|\^))", re.IGNORECASE)
TARGET = re.compile(r"(\[\w+\])?\$(\w+)")
HERE = re.compile(r"@([" + SINGLE + DOUBLE + r"])[ \t]*\n")
ENVIRONMENT = {"env:programfiles": "C:\\Program Files", "env:systemdrive": "C:", "env:programdata": "C:\\ProgramData"}


@dataclass
class Word:
    """One word of a command: as written, and its value."""

    raw: str = ""
    value: str = ""


class Script:
    """Parses one script."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.position = 0
        self.variables: dict[str, str] = dict(ENVIRONMENT)
        self.word: Word | None = None
        self.words: list[Word] = []
        self.commands: list[list[Word]] = []
        self.open_brackets: list[str] = []

    def read(self) -> list[list[Word]]:
        """All commands of the script. Raises InvalidUserData if PowerShell cannot parse it."""
        while self.position < len(self.text):
            self.read_next()
        self.end_command()
        if self.open_brackets:
            raise InvalidUserData(f"PowerShell: missing closing '{self.open_brackets[-1]}'")
        return self.commands

    def read_next(self) -> None:
        """Read the next token."""
        rest, char = self.text[self.position : self.position + 2], self.text[self.position]
        if self.word is None and self.read_word_start(char, rest):
            return
        if char in " \t":
            self.end_word()
        elif char in "\n;|&":
            self.end_command()
        elif char in "{(":
            self.end_command()
            self.open_brackets.append({"{": "}", "(": ")"}[char])
        elif char in "})":
            self.end_command()
            if not self.open_brackets or self.open_brackets.pop() != char:
                raise InvalidUserData(f"PowerShell: unexpected token '{char}'")
        elif char == ",":
            self.end_word()
            self.words.append(Word(",", ","))
        elif char == "=" and self.word and not self.words and TARGET.fullmatch(self.word.raw):
            self.end_word()
            self.words.append(Word("=", "="))
        elif char == "`":
            self.read_escape()
        elif char in SINGLE + DOUBLE:
            self.read_string(char)
        else:
            self.read_character(char)
            return
        self.position += 1

    def read_word_start(self, char: str, rest: str) -> bool:
        """Read a token that only the start of a word can contain. Returns whether there was one."""
        here_string_match, redirection = HERE.match(self.text, self.position), REDIRECTION.match(self.text, self.position)
        if char == "#":
            self.position = self.find("\n", self.position, len(self.text))
        elif rest == "<#":
            self.position = self.find("#>", self.position, None) + 2
        elif here_string_match:
            self.read_here_string(here_string_match)
        elif redirection:
            self.position = redirection.end()
        elif char == "&" and rest != "&&" and not self.words:
            self.words.append(Word("&", "&"))
            self.position += 1
        else:
            return False
        return True

    def find(self, text: str, start: int, default: int | None) -> int:
        """The position of the next occurrence of a text."""
        found = self.text.find(text, start)
        if found < 0 and default is None:
            raise InvalidUserData(f"PowerShell: the terminator {text} is missing")
        return default if found < 0 else found

    def add(self, raw: str, value: str) -> None:
        """Append to the current word, or start one."""
        self.word = self.word or Word()
        self.word.raw += raw
        self.word.value += value

    def read_character(self, char: str) -> None:
        """Read one character or one variable outside of quotes."""
        variable = VARIABLE.match(self.text, self.position)
        raw = variable[0] if variable else char
        self.add(raw, self.lookup(variable) if variable else char)
        self.position += len(raw)

    def read_escape(self) -> None:
        """Read a backtick outside of quotes. It continues a line, or escapes the next character."""
        self.position += 1
        following = self.text[self.position : self.position + 1]
        if following == "\n":
            self.end_word()
        else:
            self.add("`" + following, following)

    def read_string(self, quote: str) -> None:
        """Read a quoted string. The caller skips the closing quote."""
        start, value, delimiters = self.position, "", SINGLE if quote in SINGLE else DOUBLE
        self.position += 1
        while True:
            char = self.text[self.position : self.position + 1]
            if not char:
                raise InvalidUserData(f"PowerShell: the string is missing the terminator: {quote}")
            if char in delimiters:
                if self.text[self.position + 1 : self.position + 2] not in tuple(delimiters):
                    break
                value += char
                self.position += 2
            elif delimiters == DOUBLE and char in "`$":
                value += self.expand(char)
            else:
                value += char
                self.position += 1
        self.add(self.text[start : self.position + 1], value)

    def expand(self, char: str) -> str:
        """Read an escape, a variable or a subexpression in a double-quoted string."""
        if char == "`":
            self.position += 2
            following = self.text[self.position - 1 : self.position]
            return ESCAPES.get(following, following)
        variable = VARIABLE.match(self.text, self.position)
        if variable:
            self.position = variable.end()
            return self.lookup(variable)
        if self.text.startswith("$(", self.position):
            self.position = self.find(")", self.position, None) + 1
            return ""
        self.position += 1
        return char

    def read_here_string(self, opening: re.Match[str]) -> None:
        """Read the lines between @' and '@."""
        delimiters = SINGLE if opening[1] in SINGLE else DOUBLE
        end = re.compile(f"\n[{delimiters}]@").search(self.text, opening.end() - 1)
        if not end:
            raise InvalidUserData(f"PowerShell: the string is missing the terminator: {opening[1]}@")
        self.add(self.text[self.position : end.end()], self.text[opening.end() : max(end.start(), opening.end())])
        self.position = end.end()

    def lookup(self, variable: re.Match[str]) -> str:
        """The value of a variable."""
        return self.variables.get((variable[1] or variable[2]).lower(), "")

    def end_word(self) -> None:
        """End the current word."""
        if self.word is not None:
            self.words.append(self.word)
            self.word = None

    def end_command(self) -> None:
        """End the current command. An assignment sets its variable."""
        self.end_word()
        words, self.words = self.words, []
        target = TARGET.fullmatch(words[0].raw) if words else None
        if target and len(words) > 1 and words[1].raw == "=":
            self.variables[target[2].lower()] = words[2].value if len(words) > 2 else ""
        elif words:
            self.commands.append(words)


def script_arguments(text: str, script: str) -> list[Word] | None:
    """The arguments of the first call of a script file, by the file's name. None if it is not called."""
    for words in Script(text).read():
        call = words[1:] if words[0].raw == "&" else words
        if call and call[0].value.lower().rpartition("\\")[2] == script.lower():
            return call[1:]
    return None
