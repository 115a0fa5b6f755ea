"""Enough of PowerShell to see which commands a script runs with which arguments.

Follows PowerShell's "about_Parsing", "about_Quoting_Rules", "about_Special_Characters", "about_Redirection" and
"about_Comments". Blocks are read in order, whatever decides between them; what only running could tell is empty text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from localcloud.aws.nodes.user_data_error import Unusable

SINGLE = "'\u2018\u2019\u201a\u201b"
"""Each of these begins or ends a verbatim string, the typographic ones too."""
DOUBLE = '"\u201c\u201d\u201e'
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b"}
REDIRECTION = re.compile(r"[1-6*]?>{1,2}(&[12])?")
VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|(env:\w+|\w+|\?|\$|\^))", re.IGNORECASE)
TARGET = re.compile(r"(\[\w+\])?\$(\w+)")
HERE = re.compile(r"@([" + SINGLE + DOUBLE + r"])[ \t]*\n")
ENVIRONMENT = {"env:programfiles": "C:\\Program Files", "env:systemdrive": "C:", "env:programdata": "C:\\ProgramData"}


@dataclass
class Word:
    """One word of a command: as written, and what it stands for."""

    raw: str = ""
    value: str = ""


class Script:
    """Reads a script once, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.variables: dict[str, str] = dict(ENVIRONMENT)
        self.word: Word | None = None
        self.words: list[Word] = []
        self.commands: list[list[Word]] = []
        self.open: list[str] = []

    def read(self) -> list[list[Word]]:
        """All commands; a script that PowerShell cannot parse runs none of them."""
        while self.at < len(self.text):
            self.step()
        self.end_command()
        if self.open:
            raise Unusable(f"PowerShell: missing closing '{self.open[-1]}'")
        return self.commands

    def step(self) -> None:
        """Read what begins here."""
        rest, char = self.text[self.at : self.at + 2], self.text[self.at]
        if self.word is None and self.between(char, rest):
            return
        if char in " \t":
            self.end_word()
        elif char in "\n;|&":
            self.end_command()
        elif char in "{(":
            self.end_command()
            self.open.append({"{": "}", "(": ")"}[char])
        elif char in "})":
            self.end_command()
            if not self.open or self.open.pop() != char:
                raise Unusable(f"PowerShell: unexpected token '{char}'")
        elif char == ",":
            self.end_word()
            self.words.append(Word(",", ","))
        elif char == "=" and self.word and not self.words and TARGET.fullmatch(self.word.raw):
            self.end_word()
            self.words.append(Word("=", "="))
        elif char == "`":
            self.escape()
        elif char in SINGLE + DOUBLE:
            self.string(char)
        else:
            self.bare(char)
            return
        self.at += 1

    def between(self, char: str, rest: str) -> bool:
        """Read what only a new word can begin with; whether there was any."""
        here, redirection = HERE.match(self.text, self.at), REDIRECTION.match(self.text, self.at)
        if char == "#":
            self.at = self.find("\n", self.at, len(self.text))
        elif rest == "<#":
            self.at = self.find("#>", self.at, None) + 2
        elif here:
            self.here_string(here)
        elif redirection:
            self.at = redirection.end()
        elif char == "&" and rest != "&&" and not self.words:
            self.words.append(Word("&", "&"))
            self.at += 1
        else:
            return False
        return True

    def find(self, text: str, start: int, default: int | None) -> int:
        """Where a text comes next."""
        found = self.text.find(text, start)
        if found < 0 and default is None:
            raise Unusable(f"PowerShell: the terminator {text} is missing")
        return default if found < 0 else found

    def add(self, raw: str, value: str) -> None:
        """Add to the word, or begin one."""
        self.word = self.word or Word()
        self.word.raw += raw
        self.word.value += value

    def bare(self, char: str) -> None:
        """One character or one variable outside of quotes."""
        variable = VARIABLE.match(self.text, self.at)
        raw = variable[0] if variable else char
        self.add(raw, self.lookup(variable) if variable else char)
        self.at += len(raw)

    def escape(self) -> None:
        """A backtick outside of quotes: it joins lines, or takes the next character as it is."""
        self.at += 1
        following = self.text[self.at : self.at + 1]
        if following == "\n":
            self.end_word()
        else:
            self.add("`" + following, following)

    def string(self, quote: str) -> None:
        """A string in quotes; the caller steps over the last one."""
        start, value, same = self.at, "", SINGLE if quote in SINGLE else DOUBLE
        self.at += 1
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                raise Unusable(f"PowerShell: the string is missing the terminator: {quote}")
            if char in same:
                if self.text[self.at + 1 : self.at + 2] not in tuple(same):
                    break
                value += char
                self.at += 2
            elif same == DOUBLE and char in "`$":
                value += self.expanded(char)
            else:
                value += char
                self.at += 1
        self.add(self.text[start : self.at + 1], value)

    def expanded(self, char: str) -> str:
        """An escape, a variable or a subexpression within double quotes."""
        if char == "`":
            self.at += 2
            following = self.text[self.at - 1 : self.at]
            return ESCAPES.get(following, following)
        variable = VARIABLE.match(self.text, self.at)
        if variable:
            self.at = variable.end()
            return self.lookup(variable)
        if self.text.startswith("$(", self.at):
            self.at = self.find(")", self.at, None) + 1
            return ""
        self.at += 1
        return char

    def here_string(self, begin: re.Match[str]) -> None:
        """Lines between @' and '@, which hold no command."""
        same = SINGLE if begin[1] in SINGLE else DOUBLE
        end = re.compile(f"\n[{same}]@").search(self.text, begin.end() - 1)
        if not end:
            raise Unusable(f"PowerShell: the string is missing the terminator: {begin[1]}@")
        self.add(self.text[self.at : end.end()], self.text[begin.end() : max(end.start(), begin.end())])
        self.at = end.end()

    def lookup(self, variable: re.Match[str]) -> str:
        """What a variable holds."""
        return self.variables.get((variable[1] or variable[2]).lower(), "")

    def end_word(self) -> None:
        """The word is complete."""
        if self.word is not None:
            self.words.append(self.word)
            self.word = None

    def end_command(self) -> None:
        """The command is complete: an assignment is remembered, anything else is a command."""
        self.end_word()
        words, self.words = self.words, []
        target = TARGET.fullmatch(words[0].raw) if words else None
        if target and len(words) > 1 and words[1].raw == "=":
            self.variables[target[2].lower()] = words[2].value if len(words) > 2 else ""
        elif words:
            self.commands.append(words)


def arguments_of(text: str, script: str) -> list[Word] | None:
    """The arguments of the first call of a script file, by the file's name; None without one."""
    for words in Script(text).read():
        called = words[1:] if words[0].raw == "&" else words
        if called and called[0].value.lower().rpartition("\\")[2] == script.lower():
            return called[1:]
    return None
