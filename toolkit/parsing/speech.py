"""The speaker of the words before a call: the model itself, or a source that it quotes, shows or reports.

A call behind a quotation mark, in a tag round other text, in code, behind a line such as "The page says:" is somebody
else's. Nobody can know every way to quote: behind a colon, and in the middle of a sentence, a call is one only where
the words before it say that the model does something now, in one of the languages below; behind a whole sentence,
unless they tell of a source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["LONGEST_REMARK", "Speech", "Surroundings", "read_remark"]

# Words that say that something is shown, and not done, in the languages that models mostly write.
_EXAMPLE_WORDS = (
    r"\b(?:examples?|for\s+instance|e\.g|looks?\s+like|as\s+follows|beispiel\w*|z\.\s?b|exemp(?:le|lo)s?|ejemplos?"
    r"|esempi[oa]?|voorbeeld\w*|przykład\w*|пример\w*|например|приклад\w*|örne\w*|exempel\w*|contoh\w*|ví\s+dụ)\b"
    r"|例|예를|예시|उदाहरण|مثال|דוגמ|ตัวอย่าง|παράδειγμα"
)
# Words of how calls are written: they speak of one, unless the model announces something.
_ABOUT = r"\b(?:format(?:ted)?|syntax|template|schema|documentation|notation|tags?|tokens?)\b"
# Words by which a model tells what somebody else says, or what stands somewhere.
_REPORTING = (
    r"\b(?:(?:contents?|text|body|transcript|translation|summary|copy|version|rendering)\s+of|show(?:ing)?\s+you|past(?:e|ing)|repeat(?:ing)?"
    r"|reproduc(?:e|ing)|relay(?:ing)?|verbatim|untrusted|word\s+for\s+word|says?|said|states?|stated|reads?\s*[:\n]|wrote|writes|written|contain(?:s|ed|ing)?|quot(?:e|es|ed|ing)|cop(?:y|ied)|pasted"
    r"|found\s+(?:this|that|it|these|the\s+following|in|on|at)|saw|receive[ds]?|got\s+(?:this|that|these|the\s+following|back)"
    r"|according|told|tells|mentions?|mentioned|replied|answered|claims?"
    r"|steht|stand|sagte?|schreibt|schrieb|geschrieben|lautet|heißt|enthält|zitat\w*|zitier\w*|gefunden|folgende\w*"
    r"|dit|disait|écrit|écrite|contient|lit|trouvé|voici|suivante?s?|dice|decía|dijo|escribió|escrito|contiene|encontré|siguiente"
    r"|encontrado|diz|disse|escreveu|contém|encontrei|seguinte|ha\s+scritto|scritto|trovato|seguente|zegt|staat|schreef|bevat|gevonden"
    r"|mówi|pisze|zawiera|napisał\w*|znalazł\w*|говор\w*|сказа\w*|написа\w*|содерж\w*|наш[её]л\w*|прочита\w*"
    r"|каже|знайш\w*|diyor|yaz\w*|buldum|içeriyor|säger|står|skrev|innehåller|hittade|nói|viết|chứa|berkata|tertulis|berisi"
    r"|říká|píše|obsahuje|λέει|γράφει|περιέχει)\b"
    r"|说|說|写着|写道|寫|内容|显示|顯示|找到|引用|提到|収|言|書い|書か|見つ|とあり|말하|말했|쓰여|적혀|적힌|나와|찾았|كتب|مكتوب|يقول|تقول|وجدت"
    r"|कहता|कहती|लिखा|मिला|כתוב|אומר|מצאתי|می‌گوید|نوشته|เขียน|บอกว่า|พบ"
)
# Where such words come from. What a model does with a source of its own accord it announces.
_SOURCE = (
    r"\b(?:page|site|website|web\s?site|message|e-?mail|mail|letter|post|comment|ticket|transcript|quotation|excerpt|snippet|readme"
    r"|paragraph|webseite|seite|nachricht|text|page\s+web|message|texte|página|mensaje|texto|mensagem|pagina|messaggio|testo"
    r"|bericht|tekst|stron\w*|wiadomoś\w*|страниц\w*|сообщени\w*|текст\w*|сторінк\w*|sayfa\w*|mesaj\w*|metin|sida\w*|trang|halaman)\b"
    r"|页面|頁面|网页|網頁|消息|文本|ページ|メッセージ|テキスト|페이지|메시지|텍스트|الصفحة|النص|الرسالة|पेज|पृष्ठ|संदेश|דף|صفحه|หน้า|σελίδα"
)
# A heading: it names what somebody else wrote, and says nothing.
_HEADING = (
    r"\A\W*(?:the\s+)?(?:document|doc|file|page|(?:search\s+)?results?|source|attachment|article|chapter|section|message"
    r"|(?:e-?)?mail|item|entry|comment|snippet|post|quote|excerpt|subject|dokument|datei|ergebnisse?|document|fichier"
    r"|r\u00e9sultats?|documento|archivo|resultados?|risultat[oi]|\u0434\u043e\u043a\u0443\u043c\u0435\u043d\u0442|\u0444\u0430\u0439\u043b"
    r"|\u6587\u4ef6|\u6587\u6863|\u7ed3\u679c)s?\s*[#\d]*(?:\s+of\s+\d+)?\W*(?:\Z|:)"
)
# Words that take back what has no mark of its own, or tell of it.
_RETRACTING_WORDS = (
    r"\b(?:such\s+as|like|would|could|if|not|never|instead|wrong|bad|incorrect|avoid|used|called|wrote|sent|made|was|were"
    r"|did|had|previous(?:ly)?|earlier|returned|asked|requested|results?|output|show\w*|explain\w*|suggest\w*"
    r"|recommend\w*|give\s+you|you\s+(?:can|may|might|should|must|need|have)"
    r"|würden?|könnten?|wenn|nicht|nie|habe|hatte|wurden?|folgt|so\s+aus|j['\u2019]ai|avais|aurais|pourrais|serait|pas|jamais"
    r"|si|utilisé|appelé|podría|sería|nunca|usé|llamé|poderia|seria|usei|chamei|ho|potrei|sarebbe|mai|бы|если|не)\b"
    r"|(?:n['\u2019]t|['\u2019]d)\b|如果|可以|结果|不|場合|結果|ました|면"
)
# How a model says what it is about to do.
_ANNOUNCING = re.compile(
    r"\b(?:I|we)(?:['\u2019](?:ll|m|re)|\s+(?:(?:also|now|first|then|just|still|next)\s+)?(?:will|am|are|need|want|have\s+to|must"
    r"|should|can|shall|call|use|try|run|invoke|check|look|search|fetch|get|request|ask|start|begin|pay|make|send|do|go))\b"
    r"|\b(?:let\s+me|let(?:['\u2019]?s|\s+us)|ich|wir|mich|je|nous|yo|voy|vamos|déjame|vou|vado|lasciami|ik|я|jag|ja|ben|tôi|saya)\b"
    r"|[我私]|제가"
    r"|\A\W*(?:sure|ok(?:ay)?|certainly|of\s+course|now|next|first|second|third|then|finally|thought|trying|making"
    r"|calling|using|running|invoking|executing|checking|searching|looking|fetching|getting|requesting|retrieving)\b"
    r"|\A\W*(?:my|the|next)?\s*(?:plan|steps?|approach|to\s?do|analysis|reasoning)\b[\W\d]*\Z"
    r"|\A\W*(?:the\s+)?(?:(?:tool|function)[\s_-]*)?(?:calls?|use|request|invocation|action|tool|function|assistant)\b"
    r"[\W\d]*\Z"
    r"|\bhere(?:['\u2019]s|\s+is|\s+are)\b.*\b(?:calls?|request|invocation|plan)\b",
    re.IGNORECASE,
)
_SHOWN_WORDS = re.compile(_EXAMPLE_WORDS, re.IGNORECASE)
_SPOKEN_OF = re.compile(_ABOUT, re.IGNORECASE)
_TOLD_WORDS = re.compile(f"{_EXAMPLE_WORDS}|{_ABOUT}|{_RETRACTING_WORDS}|{_REPORTING}", re.IGNORECASE)
_REPORTED = re.compile(f"{_REPORTING}|{_HEADING}", re.IGNORECASE)
_FROM_A_SOURCE = re.compile(_SOURCE, re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?]\s|[\u3002\uff01\uff1f](?!\Z)")
# An opening quote, or the mark of code; a closing one has something before it.
_OPENING_QUOTE = re.compile(r"(?:\A|[\s(\[{:=,>])[`\"'\u201c\u201e\u2018\u201a\u00ab\u00bb\u300c\u300e\u2039]{1,3}\Z")
_ENDING = ".!?\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964"
_COLONS = ":\uff1a"
_UNFINISHED_ENDS = _COLONS + ",;\uff0c\uff1b\u3001\u2014\u2013-="
_DECORATION = " \t\r*_"
_ITEM = re.compile(r"[ \t]*(?:[-*+\u2022]|\d{1,3}[.)])[ \t]+\Z")
_ASIDE = re.compile(r"[ \t]*[>|\u2502]|.*\|[ \t]*\Z")
_CODE_INDENT = re.compile(r"(?: {4}| {0,3}\t)[ \t]*\Z")


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """The text that stands before a place.

    Args:
        text: The last few hundred characters of the text before it; empty directly after a call.
        fence: The marks that end the fence round it; empty where there is none.
        language: The language that the fence names.
        is_quoted: True where something that was opened before it, and is open still, makes it somebody else's words.
        follows_item: True where it follows a call that was an item of a list.
    """

    text: str = ""
    fence: str = ""
    language: str = ""
    is_quoted: bool = False
    follows_item: bool = False

    @property
    def is_line_start(self) -> bool:
        """True where only spaces stand before it on its line."""
        return not self.text.rpartition("\n")[2].strip()

    @property
    def is_item(self) -> bool:
        """True where it is an item of a list."""
        return _ITEM.fullmatch(self.text.rpartition("\n")[2]) is not None

    @property
    def is_in_quotation(self) -> bool:
        """True where its line is one of a quotation, as ``> text``."""
        return _ASIDE.match(self.text.rpartition("\n")[2]) is not None

    @property
    def is_spoken_of(self) -> bool:
        """True where what has a mark of its own is no call here: it is quoted, shown, reported or spoken of."""
        if self._is_aside:
            return True
        if self.is_item:
            return not self._is_announced_item
        introduction = self._last_introduction
        if not introduction:
            return False
        is_announced = _ANNOUNCING.search(introduction) is not None
        if introduction[-1] in _UNFINISHED_ENDS or not (self.is_line_start or introduction[-1] in _ENDING):
            return not is_announced or _is_told(introduction) or bool(_SHOWN_WORDS.search(introduction))
        return _is_reported(introduction, is_announced=is_announced) or bool(
            _SPOKEN_OF.search(introduction) and introduction[-1] not in _ENDING and not is_announced
        )

    @property
    def lets_call(self) -> bool:
        """True where something without a mark of its own may be a call here.

        It must begin a line or follow the end of a sentence. Where the words before it go on with it, they must say
        that the model does something now.
        """
        if self._is_aside:
            return False
        if self.is_item:
            return self._is_announced_item
        line = self.text.rpartition("\n")[2].strip(_DECORATION)
        if line and (line[-1] not in _ENDING + _COLONS or line[:-1].isdecimal()):
            return False
        introduction = self._last_introduction
        is_announced = _ANNOUNCING.search(introduction) is not None
        if not introduction or introduction[-1] in _ENDING:
            return not _is_reported(introduction, is_announced=is_announced)
        return is_announced and not _TOLD_WORDS.search(introduction)

    @property
    def _is_aside(self) -> bool:
        line = self.text.rpartition("\n")[2]
        return bool(
            self.is_quoted
            or _OPENING_QUOTE.search(self.text[-5:])
            or self.is_in_quotation
            or (self.text.strip() and _CODE_INDENT.fullmatch(line))
        )

    @property
    def _is_announced_item(self) -> bool:
        if self.follows_item:
            return True
        lines = self.text.rstrip().split("\n")[:-1]
        introduction = _find_last_sentence(next((line for line in reversed(lines) if line.strip()), ""))
        return bool(
            introduction[-1:] in tuple(_COLONS)
            and _ANNOUNCING.search(introduction)
            and not _TOLD_WORDS.search(introduction)
        )

    @property
    def _last_introduction(self) -> str:
        """The last sentence before it, on its own line or the last one with words."""
        return _find_last_sentence(self.text.rpartition("\n")[2].strip() or self.text.rstrip().rpartition("\n")[2])


def _find_last_sentence(line: str) -> str:
    return _SENTENCE_END.split(line.strip(_DECORATION))[-1]


def _is_told(introduction: str) -> bool:
    return _REPORTED.search(introduction) is not None


def _is_reported(introduction: str, *, is_announced: bool) -> bool:
    return bool(
        _SHOWN_WORDS.search(introduction)
        or _REPORTED.search(introduction)
        or (not is_announced and _FROM_A_SOURCE.search(introduction))
    )


_ASCRIBED = re.compile(
    rf"{_REPORTING}|\b(?:above|earlier|before|was|were|from|in|by)\b.*(?:{_SOURCE}|\b(?:document|file|readme|article|user)\b)"
    rf"|\A\W*(?:\u2190|--|\u2014|\u2013)\W*\w.*(?:{_SOURCE}|\b(?:document|file|readme|article|user)\b)",
    re.IGNORECASE,
)
_EXPECTING = re.compile(
    r"\b(?:will|would|should|shall|going\s+to|once|when|after|until|wait(?:ing)?|hold|moment|next|then|wird|werden|sobald"
    r"|va|vais|sera|cuando|va\s+a|quando)\b|['\u2019]ll\b",
    re.IGNORECASE,
)
LONGEST_REMARK = 200
"""How many characters behind a call are looked at for whose call it is."""


def read_remark(text: str, *, is_ended: bool) -> bool | None:
    """Return whether the words behind a call say that it is somebody else's; None where more of them must be read."""
    words = text.lstrip()[:LONGEST_REMARK]
    end = re.search(r"[.!?]\s|[\u3002\uff01\uff1f]|\n", f"{words} " if is_ended else words)
    if end is None and len(words) < LONGEST_REMARK and not is_ended:
        return None
    remark = words if end is None else words[: end.start() + 1]
    return bool(_ASCRIBED.search(remark) and not _ANNOUNCING.search(remark) and not _EXPECTING.search(remark))


_PAIRS = {
    "\u201c": "\u201d", "\u201e": "\u201c\u201d", "\u00ab": "\u00bb", "\u300c": "\u300d", "\u300e": "\u300f",
    "\u2039": "\u203a",
}  # fmt: skip
_EVENTS = re.compile(
    r"\n|\"|`+|\$\$|'''|\\(?P<edge>begin|end)\{(?P<block>[a-z*]{1,20})\}|<<-?\s?['\"]?(?P<here>[A-Z_]{2,20})\b"
    r"|\[(?P<unquote>/)?(?P<quote>quote|code|pre|page|document|e?mail|message|text|file|content|source|log|noparse|spoiler)"
    r"(?:=[^\]\n]{0,60})?\]|[\u201c\u201d\u201e\u00ab\u00bb\u300c\u300d\u300e\u300f\u2039\u203a]"
    r"|<(?P<close>/)?(?P<name>[A-Za-z][\w:.-]{0,40})(?:\s[^<>\n]{0,200})?(?P<empty>/)?>",
)
_OPEN_END = re.compile(r"(?:`+|(?<!\$)\$|(?<!')'{1,2}|\\[a-z*{]{0,28}|\[[^\[\]\n]{0,75}|<{1,2}[^<>\n]{0,250})\Z")
# The first line of a letter, by which it says who wrote it.
_LETTER = re.compile(
    r"(?:from|von|de|da|van|od|fr\u00e5n|\u043e\u0442|\u0432\u0456\u0434|\u53d1\u4ef6\u4eba|\u5bc4\u4ef6\u8005"
    r"|\u5dee\u51fa\u4eba|\ubcf4\ub0b8 \uc0ac\ub78c)\s?[:\uff1a]\s?\S",
    re.IGNORECASE,
)
# Tags that nobody closes, and those in which models put their own words.
_OWN_TAG_NAMES = (
    "br hr img p li b i em strong u wbr input link meta answer final_answer final reply assistant action actions step "
    "steps plan tool_call tool_calls function_call function_calls tools tool function invoke minimax:tool_call"
)
_OWN_TAGS = frozenset(_OWN_TAG_NAMES.split())
_LONGEST_LINE = 300
_MOST_COLONS = 5_000
_MOST_TAGS = 100


class Speech:
    """Follows a reply, and says whether a quotation is open: in marks, code or a tag, or behind a line with a colon.

    Attributes:
        is_reporting: True where a line ended with a colon and did not say that the model does something.
        is_citing: True where such a line told of a source.
    """

    def __init__(self) -> None:
        self._rest = ""
        self._line: list[str] = []
        self._begins_line = True  # whether nothing but spaces and marks stands on the line so far
        self._colons = 0
        self._closers: list[str] = []
        self._tags: list[str] = []
        self._is_in_quotes = False
        self._is_in_code = False
        self.is_reporting: bool = False
        self.is_citing: bool = False

    @property
    def is_quoting(self) -> bool:
        """True where what comes next is somebody else's words."""
        return bool(self._closers or self._tags or self._is_in_quotes or self._is_in_code or self.is_reporting)

    @property
    def lets_thoughts_end(self) -> bool:
        """True where the end of thoughts that nothing began may stand here: then all before it was thought."""
        return not (self._closers or self._tags or self._is_in_quotes or self._is_in_code or self.is_citing)

    def hear(self, text: str) -> None:
        """Take text that the model wrote, cut anywhere."""
        text = self._rest + text
        cut = _OPEN_END.search(text, max(0, len(text) - 260))
        self._rest = "" if cut is None else cut[0]
        text = text[: len(text) - len(self._rest)]
        position = 0
        for event in _EVENTS.finditer(text):
            self._extend_line(text[position : event.start()])
            self._take_event(event)
            position = event.end()
        self._extend_line(text[position:])

    def skip(self, text: str) -> None:
        """Take text whose marks mean nothing: code, data, a call."""
        self._rest = ""
        if "\n" in text:
            self._line.clear()
            self._begins_line = True
        self._extend_line(text.rpartition("\n")[2])

    def _extend_line(self, text: str) -> None:
        if text:
            self._line.append(text)
            self._begins_line = self._begins_line and not text.strip(_DECORATION + ">|-")
            if len(self._line) > _LONGEST_LINE:
                self._line = ["".join(self._line)[-_LONGEST_LINE:]]

    def _take_event(self, event: re.Match[str]) -> None:
        mark = event[0]
        if mark == "\n":
            self._end_line()
            return
        if mark == '"':
            self._is_in_quotes = not self._is_in_quotes
        elif mark[0] == "`":
            self._is_in_code = self._is_in_code != (len(mark) < 3)
        elif event["here"]:
            self._open_quotation(f"<<{event['here']}")
        elif event["block"] or event["quote"]:
            self._take_block(event)
        elif mark in ("$$", "'''"):
            self._take_pair(mark)
        elif mark[0] == "<":
            self._take_tag(event)
        elif self._closers and mark in self._closers[-1]:
            self._closers.pop()
        elif mark in _PAIRS:
            self._closers.append(_PAIRS[mark])
        self._extend_line(mark)

    def _take_block(self, event: re.Match[str]) -> None:
        name = "\\" + event["block"] if event["block"] else "[" + event["quote"]
        if event["edge"] == "end" or event["unquote"]:
            self._close_quotation(name)
        elif self._begins_line:
            self._open_quotation(name)

    def _take_pair(self, mark: str) -> None:
        if mark in self._tags:
            self._close_quotation(mark)
        elif self._begins_line or mark == "'''":
            self._open_quotation(mark)

    def _open_quotation(self, name: str) -> None:
        if len(self._tags) < _MOST_TAGS:
            self._tags.append(name)

    def _close_quotation(self, name: str) -> None:
        if name in self._tags:
            del self._tags[self._tags.index(name) :]

    def _take_tag(self, event: re.Match[str]) -> None:
        name = event["name"].casefold()
        if event["close"]:
            self._close_quotation(name)
        elif not event["empty"] and name not in _OWN_TAGS and self._begins_line:
            self._open_quotation(name)

    def _end_line(self) -> None:
        line = "".join(self._line)[-_LONGEST_LINE:].strip(_DECORATION)
        self._line.clear()
        self._begins_line = True
        self._is_in_code = False
        self._close_quotation(f"<<{line}")
        if not line:
            self._is_in_quotes = False
        elif _LETTER.match(line):
            self.is_citing = self.is_reporting = True
        elif line[-1] in _COLONS and not self.is_citing:
            self._colons += 1
            sentence = _find_last_sentence(line)
            is_announced = _ANNOUNCING.search(sentence) is not None
            # No reply has so many: to look into each of them would take long.
            self.is_citing = _is_reported(sentence, is_announced=is_announced) or self._colons > _MOST_COLONS
            self.is_reporting = self.is_reporting or self.is_citing or not is_announced
