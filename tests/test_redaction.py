"""Which values are secrets, and what is left of a text without them."""

import json
import subprocess
import sys
import traceback
from base64 import b32encode, b64encode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from urllib.parse import quote, quote_plus

import pytest

from tests.loop_turns import LONGEST_TURN, TurnMeter, slowness
from toolkit.json_text import canonical_json
from toolkit.redaction import (
    cut_causes,
    digest_of,
    is_secret_name,
    may_name_secrets,
    may_show_secrets,
    program_name,
    secrets_in_arguments,
    secrets_in_headers,
    secrets_in_url,
    secrets_of,
    without_credentials,
    without_keys,
    without_secrets,
)

SECRET = 'pa55/w?rd+"ü='


TELLING_NAMES = """
Authorization X-Auth X-Session X-Api-Key apikey accessToken Cookie Set-Cookie DB_PASSWORD PASSWD client_secret sig
X-Amz-Signature GOOGLE_CREDENTIALS x-csrf jwt pwd X-Goog-Api-Key passPhrase PassWord pass_word DBPASS smtpPass db_pass
rootpw adminPw pwds otps jwts pins pincode smsCode twoFactorCode unlock_code recoveryPhrase backup-phrase seedWords
PHPSESSID connect.sid sid hmac GITHUB_PAT pem id_rsa client_assertion SAMLResponse code_verifier securityAnswer
password1 pin_2
"""
HARMLESS_NAMES = """
max_tokens max_completion_tokens input_tokens author keywords keyboard pattern path bypass compass pass_rate
passenger spin pinned opinion status_code country_code seed side path_id public_key key_id keys KeyError
"""


@pytest.mark.parametrize("name", TELLING_NAMES.split())
def test_names_tell_of_secrets(name: str) -> None:
    assert is_secret_name(name)
    assert may_name_secrets(f'{{"{name}": 1}}')


@pytest.mark.parametrize("name", HARMLESS_NAMES.split())
def test_names_that_only_sound_so_tell_of_none(name: str) -> None:
    assert not is_secret_name(name)


def test_values_are_secrets_by_their_names() -> None:
    values = {
        "API_KEY": "s3cret",
        "Authorization": "Bearer t0ken",
        "MODE": "plain",
        "USE_AUTH": "true",
        "TOKENS": "4096",
    }
    assert set(secrets_of(values)) == {"s3cret", "Bearer t0ken", "t0ken"}


def test_headers_of_an_application_are_secrets_whatever_their_names() -> None:
    login = b64encode(b"ada:hunter22").decode()
    headers = {"X-Tenant": "acme-7781", "Content-Type": "application/json", "Proxy": f"Basic {login}"}
    assert {"acme-7781", login, "hunter22"} <= set(secrets_in_headers(headers))
    assert "application/json" not in secrets_in_headers(headers)


def test_a_url_holds_secrets_in_its_login_and_query() -> None:
    found = set(secrets_in_url("https://ada:p%40ss@host/path?sig=a%2Fb%2Bc&x=1234"))
    assert {"ada", "p%40ss", "p@ss", "a%2Fb%2Bc", "a/b+c", "1234"} <= found


@pytest.mark.parametrize(
    ("arguments", "secrets"),
    [
        (["--api-key", "s3cret", "--verbose", "yes"], {"s3cret"}),
        (["run", "--token=a=b", "--key"], {"a=b", ""}),
        (["key", "value"], set[str]()),
        ([], set[str]()),
        (["tok3n-abcdef-99", "/srv/data2/x-1234567", "main2-server.py", "8080", "server==1.2.3"], {"tok3n-abcdef-99"}),
        (["-e", "API_KEY=s3cret", "MODE=fast"], {"s3cret"}),
        (["X-Tenant: acme-77", "-H", "Tenant: acme-88", "a: plain"], {"acme-77", "acme-88"}),
        (["--header=Authorization: Bearer t0ken"], {"t0ken"}),
        (["postgres://ada:p%40ss@host/db"], {"ada:p%40ss", "ada:p@ss", "ada", "p%40ss", "p@ss"}),
        (["https://host/mcp?token=abcd&x=1"], {"abcd"}),
        (['{"apiKey": "s3cret"}'], {"s3cret"}),
        (["npm-server-v2-99"], set[str]()),
    ],
    ids=[
        *("after an option", "in an option", "no option", "none", "alone", "a variable", "a header", "in a header"),
        *("in an address", "in a query", "in JSON", "the program"),
    ],
)
def test_arguments_are_secrets_by_their_options(arguments: Sequence[str], secrets: set[str]) -> None:
    assert set(secrets_in_arguments("npx" if arguments[:1] == ["npm-server-v2-99"] else "./run", arguments)) - {
        ""
    } == secrets - {""}


def test_longer_secrets_are_struck_out_before_those_that_they_hold_and_short_ones_stay() -> None:
    assert without_secrets("abcdef, abcd, abc", ["abcd", "abcdef", "abc", ""]) == "***, ***, abc"


def test_a_short_secret_is_struck_out_where_it_stands_alone() -> None:
    assert (
        without_secrets("pin 4711, order 47110, 'east', least", ["4711", "east"])
        == "pin ***, order 47110, '***', least"
    )


_WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in other case": str.upper,
    "percent-encoded": lambda secret: quote(secret, safe=""),
    "percent-encoded in lower case": lambda secret: quote(secret, safe="").lower(),
    "percent-encoded as a path": quote,
    "percent-encoded as a form": quote_plus,
    "percent-encoded twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "in JSON": json.dumps,
    "in JSON of ASCII": lambda secret: json.dumps({"said": secret}),
    "in HTML": escape,
    "as Python": repr,
    "in hex": lambda secret: secret.encode().hex(),
    "in Base64": lambda secret: b64encode(secret.encode()).decode(),
    "in Base64 of URLs": lambda secret: urlsafe_b64encode(secret.encode()).decode(),
    "in Base64 behind one byte": lambda secret: b64encode(b"u" + secret.encode()).decode(),
    "in Base64 behind two bytes": lambda secret: b64encode(b"u:" + secret.encode() + b" more").decode(),
    "in HTML by numbers": lambda secret: "".join(f"&#{ord(letter)};" for letter in secret),
    "in escapes of JSON": lambda secret: "".join(f"\\u{ord(letter):04x}" for letter in secret),
    "in escapes of Python": lambda secret: "".join(f"\\x{byte:02x}" for byte in secret.encode("latin-1")),
    "in JSON within JSON": lambda secret: json.dumps(json.dumps(secret)),
    "as Python within Python": lambda secret: repr(repr(secret)),
    "percent-encoded whole": lambda secret: "".join(f"%{byte:02X}" for byte in secret.encode()),
    "in Base32": lambda secret: b32encode(secret.encode()).decode().rstrip("="),
    "in Base64 between others": lambda secret: b64encode(b"ada:" + secret.encode() + b";").decode(),
}


@pytest.mark.parametrize("write", _WRITTEN.values(), ids=_WRITTEN)
def test_a_secret_is_struck_out_however_it_is_written(write: Callable[[str], str]) -> None:
    written = write(SECRET)
    left = without_secrets(f"it said {written} and more", [SECRET])
    assert "***" in left
    assert left.startswith("it said ")
    assert left.endswith(" and more")
    assert len(left) <= len("it said  and more") + 25, left


def test_keys_are_struck_out_by_what_they_look_like() -> None:
    assert without_keys("use sk-abcdefghijklmnop1234 now") == "use *** now"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("password=hunter", "password=***"),
        ("DB_PASSWORD: hunter22", "DB_PASSWORD: ***"),
        ('{"client_secret": "abcdef"}', '{"client_secret": "***"}'),
        (r'{"body": "{\"api_key\": \"abcdef\"}"}', r'{"body": "{\"api_key\": \"***\"}"}'),
        ("Authorization: Token abcd1234", "Authorization: Token ***"),
        ("access_token=abcd1234&x=1", "access_token=***&x=1"),
        ("https://b.example/o?X-Amz-Signature=abcd1234&part=2", "https://b.example/o?X-Amz-Signature=***&part=2"),
        ("https://b.example/o?a=1&sig=a%2Fb#x", "https://b.example/o?a=1&sig=***#x"),
        ("enter your password: please", "enter your password: please"),
        ("secret = get_secret(name)", "secret = get_secret(name)"),
        ("password=None, token=$TOKEN", "password=None, token=$TOKEN"),
        ("max_tokens=1000, key = sorted", "max_tokens=1000, key = sorted"),
        ("https://b.example/?keyword=abcd&page=2", "https://b.example/?keyword=abcd&page=2"),
    ],
)
def test_what_a_telling_name_is_given_is_struck_out(text: str, left: str) -> None:
    assert without_keys(text) == left
    assert without_keys(left) == left


PLANTED = "Zq8vKp3xW2mN7rT4yB9cD1fG6hJ0"
WRITTEN = {
    "a header of an unknown scheme": "Authorization: ApiKey {}",
    "cookies of a request": "Cookie: theme=dark; sid={}",
    "a cookie of a response": "Set-Cookie: sid={}; Path=/; HttpOnly",
    "the cookies of a client": "<Cookies[<Cookie sid={} for h/>]>",
    "headers as pairs of bytes": "[(b'accept', b'*/*'), (b'x-api-key', b'{}')]",
    "a header with a key for a subscription": "Ocp-Apim-Subscription-Key: {}",
    "an option of a command": "tool --verbose --password {} --x",
    "the login of curl": "curl -u ada:{} https://h.example",
    "a key that was cut off": "-----BEGIN PRIVATE KEY-----\nMII{}\n{}",
    "a key with headers": "-----BEGIN EC PRIVATE KEY-----\nDEK-Info: A,B\n\n{}\n-----END EC PRIVATE KEY-----",
    "a key of PGP": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{}\n-----END PGP PRIVATE KEY BLOCK-----",
    "JSON within a sentence": 'it answered {"a": 1, "auth": {"value": ["{}"]}} twice',
    "an object by its repr": "Login(user='ada', token='{}')",
    "an error of Pydantic": "1 error for A\npassword\n  Not an integer [type=int, input_value='{}', input_type=str]",
    "an element of XML": "<user>ada</user><password>{}</password>",
    "an attribute of XML": '<db user="ada" secret="{}"/>',
    "an input of a form": '<input type="password" name="a" value="{}">',
    "an input whose value comes first": "<input value='{}' type=\"hidden\" name='csrf_token'/>",
    "a setting of .NET": '<add key="db.password" value="{}" />',
    "a bean of Spring": '<property name="clientSecret" value="{}"/>',
    "a part of a form": '--b\r\nContent-Disposition: form-data; name="password"\r\n\r\n{}\r\n--b--',
    "a part with a type": '--b\nContent-Disposition: form-data; name="api_key"\nContent-Type: text/plain\n\n{}\n--b--',
    "the answer to a digest's question": 'Authorization: Digest username="ada", nonce="n", response="{}"',
    "a signature in several fields": "Authorization: AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=h, Signature={}",
    "a line of pgpass": "db.example:5432:app:ada:{}",
    "a line of netrc": "machine h login ada password {}",
    "a statement of SQL": "ALTER ROLE ada WITH PASSWORD '{}'",
    "another statement of SQL": 'CREATE USER ada IDENTIFIED BY "{}"',
    "a key of Kubernetes": "    client-key-data: {}",
    "a name in an address": "body=password%3D{}",
    "JSON in an address": "%7B%22password%22%3A%22{}%22%7D",
    "JSON in HTML": "&quot;password&quot;: &quot;{}&quot;",
    "JSON with escapes": "\\u0022password\\u0022: \\u0022{}\\u0022",
    "an array of PHP": "'password' => '{}'",
    "a hash of Ruby": '{:password=>"{}"}',
    "a code that is valid once": "one-time code: {}",
    "the secret of a webhook": "whsec_{}",
    "the address of a bot": "https://api.telegram.org/bot123456789:AA{}xx/getMe",
    "a token of a bot": "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.{}",
    "a token that renews others": "1//0{}{}",
    "an option that is one letter": "mysql -uroot -p{} shop",
    "an option of one letter and a blank": "docker login -u ada -p {}",
    "the option of a program that asks for passwords": "sshpass -p {} ssh h",
    "a phrase of openssl": "openssl rsa -passin pass:{}",
    "an option for Windows": "cmdkey /add:h /user:ada /pass:{}",
    "a sentence": "The password is {} now.",
    "a sentence with more words": "use the access token of ada {} for that",
    "a label with a blank": "API Key: {}",
    "a label of three words": "Secret access key = {}",
    "a label without a sign": "Client secret {}",
    "a bold label": "**Password:** {}",
    "a row of a table": "| password | {} |",
    "a column of a table": "| user | password |\n| --- | --- |\n| ada | {} |",
    "a column of CSV": 'id,"api_token",city\n1,{},Rome\n',
    "a column between tabs": "user\tpassword\nada\t{}\n",
    "an arrow": "password -> {}",
    "an assignment of Pascal": "password := {}",
    "a letter string of JavaScript": "const apiKey = `{}`;",
    "a block of YAML": "password: |\n  {}\n",
    "bytes in a dict": "{b'password': b'{}'}",
    "an element with attributes": "<wsse:Password Type='text'>{}</wsse:Password>",
    "an element with raw text": "<password><![CDATA[{}]]></password>",
    "a pair of elements": "<key>AccessToken</key>\n<string>{}</string>",
    "a statement of MySQL": "ALTER USER 'a' IDENTIFIED WITH mysql_native_password BY '{}'",
    "a statement of Oracle": "CREATE USER ada IDENTIFIED BY {}",
    "the code of a redirect": "https://h.example/back?code={}&state=x1",
    "the code of a redirect behind its state": "GET /back?state=ab&code={} HTTP/1.1",
    "the code in the body of a request": "grant_type=authorization_code&code={}",
    "the hash of a password": "ada:$6${}$abcdefghijklmnop:19000:0:99999:7:::",
    "JSON in a sentence in JSON": '{"note": "it said {\\"auth\\": {\\"value\\": \\"{}\\"}} to me"}',
    "JSON three levels down in a sentence": "as "
    + json.dumps({"a": json.dumps({"b": json.dumps({"auth": {"v": "{}"}})})}),
    "a line of logfmt": "level=info token={} at=x",
    "a row of an insert": "INSERT INTO users (id, password) VALUES (1, 'x'), (2, '{}')",
    "a row of an insert with a call": "INSERT INTO `u` (`name`, `token`) VALUES (concat('a', ',b'), '{}')",
    "lists side by side": "dict(zip(['user', 'password'], ['ada', '{}']))",
    "lists of an object within a sentence": 'got {"names": ["user", "password"], "values": ["ada", "{}"]} twice',
    "rows of an object within a sentence": 'got {"columns": ["user", "token"], "rows": [["ada", "{}"]]} twice',
    "a name beside its value, within a sentence": 'got {"name": "DB_PASSWORD", "value": "{}"} twice',
    "a value in front of its name": "got {'value': '{}', 'name': 'DB_PASSWORD'} twice",
    "a value beside a mark": 'got {"name": "a", "sensitive": true, "value": "{}"} twice',
    "headers within a sentence": "sent {'headers': {'X-Tenant': '{}'}} twice",
    "pairs of headers within a sentence": "sent {'headers': [['X-Tenant', '{}']]} twice",
    "an object that was cut off": 'got {"env": [{"name": "DB_PASSWORD", "value": "{}"',
    "a name above its value": "env:\n  - name: DB_PASSWORD\n    value: {}\n  - name: A\n    value: b",
    "data of a secret of Kubernetes": "kind: Secret\nmetadata:\n  name: db\ndata:\n  user: {}\n",
    "any data of a secret of Kubernetes": "stringData:\n  user: {}\n",
    "a table between lines": " name | password \n------+---------\n ada  | {}\n",
    "a table in a box": "+----+----+\n| a | token |\n+----+----+\n| 1 | {} |",
    "columns between blanks": "NAME   PASSWORD   AGE\nada    {}   3d\n",
    "the next cell of HTML": "<tr><th>API key</th><td>{}</td></tr>",
    "an element with its name": '<string name="api_key">{}</string>',
    "wide letters": "\uff50\uff41\uff53\uff53\uff57\uff4f\uff52\uff44\uff1a{}",
    "an anchor of YAML": "password: &pw {}\nother: *pw",
    "a tag of YAML": "password: !vault {}",
    "a comment before a value": '{"password": /* of ada */ "{}"}',
    "a name with a type": 'val apiKey: String = "{}"',
    "a name with a type of VB": 'Dim password As String = "{}"',
    "the only argument of a call": "SecretStr('{}')",
    "a setter": 'config.setPassword("{}");',
    "a login of two arguments": "HTTPBasicAuth('ada', '{}')",
    "a call around a value": 'let token = String::from("{}");',
    "a default of a variable": 'variable "db_password" {\n  default = "{}"\n}',
    "a call with other arguments": "os.setenv('API_KEY', '{}', 1)['x']",
    "a secure string": 'ConvertTo-SecureString "{}" -AsPlainText',
    "a dump of PHP": 'array(1) {\n  ["password"]=>\n  string(28) "{}"\n}',
    "a serialized array of PHP": 's:8:"password";s:28:"{}";',
    "a pair of Lisp": '((password . "{}"))',
    "an assignment of R": 'password <- "{}"',
    "dots in front of a value": "Password........: {}",
    "a joined login of curl": "curl -uada:{} https://h.example",
    "a login within an encoded URL": "next=https%3A%2F%2Fa.example%2F%3Ftoken%3D{}",
    "the password for a user of MySQL": "SET PASSWORD FOR 'ada'@'h' = '{}'",
}
_IN_LETTERS = {
    "YAML": "user: ada\npassword: {}\n",
    "an item of YAML": "- password: {}\n- user: x",
    "a difference": "-password: old\n+password: {}",
    "a hit of grep": "config.yml:12:  password: {}",
    "a Dockerfile": "FROM x\nENV APP_SECRET {}\nRUN y",
    "a variable of a shell": "set -x API_TOKEN {}",
    "the last option": "mongosh --username ada --password {}",
    "an option before others": "gpg --batch --passphrase {} -d x.gpg",
    "a quoted word": "Login failed with password '{}'",
    "a word between backticks": "the password `{}` is expired",
    "a name in front of a quote": 'storePassword "{}"',
    "a directive": 'proxy_set_header Authorization "Bearer {}";',
    "an option for Windows": "tool.exe /password:{} /x",
}
HARMLESS = [
    "KeyError: 'city'",
    "git log --author=ada --oneline -5", "sort --key 2,2 a.txt", "use --token-file /etc/x and --key-path a/b",
    "run with --password to be asked", "docker run -u 1000:1000 x", "def f(key='name', sort_key='age', author='ada')",
    "<key>CFBundleName</key><author>Ada Lovelace</author>", "('key', 'value1'), ('a1', 'b2')", "Cookie: see the manual",
    "the verification code was sent", "Authorization: required", "error at login page password reset",
    '<input type="text" name="city" value="Rome"><a name="x" id="y">', "app.py:12:5:error:unused", "10:30:00:00:15",
    'Content-Disposition: form-data; name="city"\r\n\r\nRome\r\n', "Authorization: Digest is what it wants, not Basic",
    'got {"tokens": 12, "a": {"b": 1}}', 'x = {"keys": {"a": 1}}', "opinion = 12345", "secretary: 12345",
    "name\n  Not an integer [type=int, input_value='abc', input_type=str]", "password = getpass()", "1//02",
    "the token bucket allows 4096 requests a minute", "max_tokens: 4096, model: gpt-4o-mini-2024-07-18", "-P 8 workers",
    "Incorrect API key provided for model gpt-4o-mini", "mkdir -p build/out2/x", "nmap -p 1-65535 h", "ssh -p 2222 h",
    "docker run -p8080:80 x", "cp -p file1.txt dir2/", "git log -p main2", "gcc -pthread -pipe x.c", "xargs -P 16",
    "password must have 8 characters or more", "https://h/x?code=404", "status code=200, state=open", "a -> b1c2d3e4f5",
    "| name | count |\n| --- | --- |\n| key value | 12 |", "name,count\nada,12", "unexpected token: }", "token: 12",
    "bypass the v2beta1 api", "compass north42 degrees", "see docs/secrets/rotate2024.md",
    "rotate the api key at 2026-11-24", "the secret of success is 42 steps", "passed 12345abc tests",
    "secret/data/app1/config2",
    "client key rotation us-east-1a",
    '{"key": "color", "value": "red"}', "verification code sent to +4917012345", "argon2id$m", "pass@1: 0.87",
    "authority: example.org", "auth_url=https://login.example/authorize", "password_changed_at: 2024-01-01",
    "key_size=2048", "hotkey: ctrl+k", "password = os.environ['PASSWORD']", "api_key = settings.api_key",
    "self.password = password", "connect(password=password)", "const token = await getToken();",
    "let secret = process.env.SECRET;", "token = tokens[0]", "password: 'string'", "--key-size 2048",
    "secretName: db-secret", "secretKeyRef:\n  name: db\n  key: password", "tokens_per_second: 45.2",
    "    pass  # nothing to do\n    pass  # nor here", "cat /etc/passwd | head", "class Token {\n  size = 12345\n}",
    "INSERT INTO t (id, name) VALUES (1, 'ada')", "monkey: banana99x", "token = get_token('main1234')",
    "Unexpected token 'IDENTIFIER' at line 4", "password: {{ db_password }}", "(name, password), later ('ab', 'cd')",
]  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_text_gives_to_a_telling_name_is_struck_out_however_it_is_written(name: str) -> None:
    left = without_keys(WRITTEN[name].replace("{}", PLANTED))
    assert PLANTED not in left
    assert "***" in left
    assert without_keys(left) == left


@pytest.mark.parametrize("text", [*WRITTEN.values(), *_IN_LETTERS.values(), "AKIAABCDEFGHIJKLMNOP"])
def test_no_arguments_with_a_text_that_shows_a_secret_are_passed_over(text: str) -> None:
    assert may_show_secrets(canonical_json({"a": text.replace("{}", PLANTED), "b": 1}), fields=2)


def test_arguments_of_single_words_need_no_second_look() -> None:
    assert not may_show_secrets('{"city":"Paris","days":3.5,"metric":true}', fields=3)


@pytest.mark.parametrize("name", _IN_LETTERS)
def test_a_secret_of_letters_is_struck_out_where_the_syntax_shows_it(name: str) -> None:
    left = without_keys(_IN_LETTERS[name].replace("{}", "correcthorse"))
    assert "correcthorse" not in left
    assert without_keys(left) == left


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert without_keys(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "eyJ-" * 12_000,
        "a\n  " + "input_value=" * 4_000,
        "a=" * 25_000 + "code=x",
        "A" * 50_000 + " code=x",
        "authorization: x a=" * 2_500 + "\n, ",
        "see eyJhbGciOi" * 3_500,
        "{6hJ0x?code=404" * 1_300,
        "password " * 5_000,
        "password|x\n" * 2_000,
        "auth: {" * 6_000,
        "({[<a" * 8_000 + "token",
        "<password " * 4_000,
        "\\'token\\" * 4_000,
        "(password, 'x') " * 1_500,
    ],
    ids=lambda text: text[:20],
)
def test_no_text_is_searched_for_long(text: str) -> None:
    meter = TurnMeter()
    meter.during(lambda: without_keys(text))
    assert meter.longest / slowness() < LONGEST_TURN


@pytest.mark.parametrize("digit", "0123456789abcdef")
def test_a_digest_stays_whatever_it_begins_with(digit: str) -> None:
    digest = digit + "d742b0f49bc8992026248c71d98af12c8ba6c9413e22d157fc1a5698d9dcbcb"
    text = json.dumps({"pin": f"secret:{digest}"})
    assert without_keys(text) == text


def test_a_digest_of_a_secret_can_be_made_in_this_process_alone() -> None:
    program = "from toolkit.redaction import digest_of; print(digest_of('1234'))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert digest_of("1234") == digest_of("1234") != digest_of("1235")
    assert told.strip() != digest_of("1234")


def test_causes_that_show_a_secret_are_cut_wherever_they_stand_in_the_chain() -> None:
    first, second, third = ValueError("the s3cret-77"), TypeError("harmless"), KeyError("also harmless")
    second.__cause__, third.__context__ = first, second
    cut_causes(third, partial(without_secrets, secrets=["s3cret-77"]))
    shown = "".join(traceback.format_exception(third))
    assert "harmless" in shown
    assert "TypeError" in shown
    assert "s3cret" not in shown


def test_a_url_is_shown_without_what_may_be_secret() -> None:
    assert without_credentials("https://ada:pw@host:8/path?key=1#x") == "https://host:8/path"


@pytest.mark.parametrize(
    ("command", "arguments", "name"),
    [
        ("npx", ["-y", "@modelcontextprotocol/server-everything"], "server-everything"),
        ("/usr/bin/python3.12", ["-m", "mcp_server_time"], "mcp_server_time"),
        ("ruby", ["./plugins/template.rb"], "template.rb"),
        ("./weather", ["--key", "s3cret"], "weather"),
        ("python", ["-c", "print('s3cret')"], "python"),
    ],
)
def test_a_program_is_called_by_what_can_hold_no_secret(command: str, arguments: Sequence[str], name: str) -> None:
    assert program_name(command, arguments) == name
