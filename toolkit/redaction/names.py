"""Names that tell of secrets: what the name of a field, a header, a variable or an option says of its value."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, cast


class Pattern:
    """A regular expression, compiled when it is first used: compiling all of this module takes 11 ms."""

    def __init__(self, source: str, flags: int = 0) -> None:
        self.source = source
        self._flags = flags

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled expression."""
        return re.compile(self.source, self._flags)


def join_words(words: Iterable[str]) -> str:
    """Return a pattern of any of these words, by their first letters: that is searched in a third of the time."""
    rest: dict[str, list[str]] = {}
    for word in words:
        rest.setdefault(word[:1], []).append(word[1:])
    if "" in rest:
        return ""
    return "(?:" + "|".join([re.escape(first) + join_words(after) for first, after in rest.items()]) + ")"


def read_words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Names. The words are those of the deny lists of Sentry, Rails and OWASP's Logging Cheat Sheet, of OAuth, JOSE and
# HTTP, and of the options of common programs.
OTHER, DOUBTFUL, TELLING = range(3)  # a doubtful name tells of a secret if its value is a random text
_STEM = Pattern(
    r"passw|passphrase|passcode|passkey|secret(?!ar|i)|token(?!i[sz])|credential|cookie|sessid|sessionid|bearer|csrf"
    r"|xsrf|hmac|mnemonic"
)  # in any part of a word
_WORDS = read_words(
    "pass pw pwd pin otp totp hotp jwt jws jwe jwk mfa 2fa twofa cvv cvc psk cred dsn pem pat puk kek dek netrc"
    " pgpass sid sig auth oauth session authorization authentication"
)
_DOUBTFUL_WORDS = read_words(
    "key code license licence ticket grant nonce salt pepper seed entropy activation verifier unlock vault webhook"
    " invite login refresh priv private signature sas assertion master pfx"
)
# Words that tell of a secret together, by the last of them; the others stand before it, apart or joined to it.
_OWNERS = read_words(
    "adm admin app become bind bot bundle client db default ftp http imap key ldap login mail my mysql old new pg"
    " proxy require root smtp sql ssh store sudo trust txt usr user vpn web wifi"
)
_COMPOUNDS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(["pass", "pw", "pwd"], _OWNERS),
    **dict.fromkeys(["phrase", "word"], read_words("backup pass recovery seed wallet")),
    **dict.fromkeys(["str", "string"], read_words("conn connection secure")),
    **dict.fromkeys(["rsa", "dsa", "ecdsa", "ed"], read_words("id")),
    **dict.fromkeys(["live", "test"], read_words("sk")),
    "key": read_words(
        "access account admin aes api app auth client consumer decryption deploy dsa ec ecdsa enc encryption hmac"
        " host integration master oauth pass pgp gpg pre preshared private priv recovery role rsa security server"
        " service session shared sign signing ssh ssl storage subscription tls unlock unseal wallet webhook wep wifi"
        " wpa"
    ),
    "code": read_words(
        "2fa access activation alarm auth backup door entry factor gate lock login mfa otp pass pin recovery reset"
        " safe scratch security sms time unlock verification"
    ),
    "answer": read_words("challenge security"),
    "assertion": read_words("client saml"),
    "community": read_words("snmp"),
    "data": read_words("string"),
    "id": read_words("access secret sess session"),
    "material": read_words("key"),
    "response": read_words("saml"),
    "seed": read_words("totp wallet"),
    "signature": read_words("amz goog request webhook"),
    "verifier": read_words("code oauth"),
}
# A name that ends with one of these, or has one that counts, is about a secret, and names none.
_ABOUT = read_words(
    "age alg algorithm at authority budget class consent count date dir domain endpoint enabled error exception expiry"
    " expires file format id ids kind label len length level limit manager max method min mode name names path per"
    " policy provider ref required reset rate rotation scheme size state status strategy style ttl type types uri url"
    " usage use version"
)
_COUNTING = read_words("max min num n total count per limit length")
# A token after one of these is a piece of text, or a place in a list.
_OF_TEXT = read_words(
    "bos cls completion continuation cached cache eos input mask max min n next num output page pad prompt reasoning"
    " sep special stop sync total unk"
)
FILLERS = read_words("field input box textbox value data header text string str plain")
NAME_SIGNS = sorted(  # each name that tells has one of these
    read_words(
        "passw passphrase passcode passkey secret token credential cookie sess bearer csrf xsrf hmac mnemonic pass pw"
        " pin otp jw mfa 2fa twofa cvv cvc psk cred dsn pem pat puk kek dek netrc sid sig auth key code phrase word"
        " answer conn saml id_ verifier community licen ticket grant nonce salt seed entropy activation unlock vault"
        " webhook invite login refresh priv sas assertion master pepper pfx sk_ secure stringdata"
    )
)
NAME_SIGN = Pattern(join_words(NAME_SIGNS))
NAME_WORD = Pattern(r"2fa|[A-Z]+s?(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_a-zA-Z]+")
LONGEST_NAME = 100
_LONGEST_COMPOUND = 20
_RANDOM = Pattern(
    r"(?![\da-f]{8}-[\da-f]{4}-)(?=\D*\d)(?=[^a-z]*[a-z])(?!.*\d\.\d)[\w+/=.~!$%^*:-]{8,200}", re.IGNORECASE
)
SETTING_WORDS = read_words(
    "true false none null nil undefined default auto basic bearer digest disabled enabled http https json text html"
    " stream stdio required optional missing invalid expired unset empty include omit inherit same-origin string str"
    " varchar boolean bool integer int bytes object any type await new not lambda hidden password yes no"
)


def is_secret_name(name: str) -> bool:
    """Return whether the name of a header, variable or option indicates a secret: of a long one, its end."""
    return judge_name(name[-LONGEST_NAME:]) == TELLING or name.strip("-").lower() == "key"


def is_secret_field(name: str) -> bool:
    """Return whether the name of a field of JSON indicates a secret, such as that of an argument.

    A lone ``key`` does not: it finds an entry, where a header or an option of that name opens a door.
    """
    return judge_name(name[-LONGEST_NAME:]) == TELLING


@lru_cache(maxsize=4096)
def judge_name(name: str) -> int:
    """Return whether a name tells of a secret: `TELLING`, `DOUBTFUL` or `OTHER`."""
    if not name.isascii():
        name = unicodedata.normalize("NFKC", name)
    if NAME_SIGN.compiled.search(name.lower()) is None:
        return OTHER
    words = [word.lower() for word in NAME_WORD.compiled.findall(name)]
    while len(words) > 1 and (words[-1].isdecimal() or words[-1] in FILLERS) and not _are_compound(words[-3:]):
        words.pop()
    if not words or _are_compound(words[-3:]):
        return TELLING if words else OTHER
    if words[-1] in _ABOUT or not _COUNTING.isdisjoint(words):
        return OTHER
    for place, (before, word) in enumerate(pairwise(["", *words]), 1):
        stem = _STEM.compiled.search(word)
        if stem is not None and not (stem[0] == "token" and before in _OF_TEXT):
            return TELLING
        if word in _WORDS or word.removesuffix("s") in _WORDS or _are_compound(words[max(0, place - 3) : place]):
            return TELLING
    is_doubtful = words[-1] in _DOUBTFUL_WORDS or words[-1].removesuffix("s") in _DOUBTFUL_WORDS
    return DOUBTFUL if is_doubtful else OTHER


def _are_compound(words: Sequence[str]) -> bool:
    """Return whether the last word of a few tells of a secret by those before it, or by its first part."""
    for last in (words[-1], words[-1].removesuffix("s")):
        if not _COMPOUNDS.get(last, frozenset()).isdisjoint(words[:-1]):
            return True
        for cut in range(2, len(last) - 1 if len(last) < _LONGEST_COMPOUND else 0):
            if last[:cut] in _COMPOUNDS.get(last[cut:], ()):
                return True
    return False


def is_secret_value(name: str, value: object) -> bool:
    """Return whether a value is a secret by the name of its field: of a doubtful one, if it has a random text."""
    told = judge_name(name[-LONGEST_NAME:])
    return holds_secret(value, name) if told == TELLING else told == DOUBTFUL and is_random(value)


def holds_secret(value: object, name: str = "") -> bool:
    """Return whether a value below a telling name may be a secret: nothing, a truth value and a count are none."""
    if name.lower().endswith("tokens") and str(value).replace(".", "", 1).isdecimal():
        return False
    return not (value is None or isinstance(value, bool) or value in ("", [], {}, ()))


def is_random(value: Any) -> bool:
    """Return whether a value is a random text, or has one: of letters and digits, and no identifier of an object."""
    match value:
        case str():
            return _RANDOM.compiled.fullmatch(value) is not None
        case dict():
            return any(map(is_random, cast("Mapping[str, Any]", value).values()))
        case list():
            return any(map(is_random, cast("Sequence[Any]", value)))
        case _:
            return False
