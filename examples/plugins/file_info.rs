//! A plugin with one tool, `file_info`: size, lines and age of a file. `rustc -O file_info.rs` builds it, without crates.

use std::fs;
use std::io::{self, BufRead, Write};
use std::time::SystemTime;

const DEFINITION: &str = r#"{"name":"file_info","description":"Tell the size, the number of lines and the age of a file.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"Where the file is"}},"required":["path"]}}"#;

/// Returns the text under `key` in a line of JSON that holds it as a string.
fn text_under(line: &str, key: &str) -> Option<String> {
    let start = line.find(&format!("\"{key}\":\""))? + key.len() + 4;
    let mut text = String::new();
    let mut rest = line[start..].chars();
    loop {
        match rest.next()? {
            '"' => return Some(text),
            '\\' => match rest.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                'u' => {
                    let mut unit = read_unit(&mut rest)?;
                    if (0xD800..0xDC00).contains(&unit) && rest.next() == Some('\\') && rest.next() == Some('u') {
                        unit = 0x10000 + ((unit - 0xD800) << 10) + (read_unit(&mut rest)?.wrapping_sub(0xDC00) & 0x3FF);
                    }
                    text.push(char::from_u32(unit).unwrap_or('\u{FFFD}'));
                }
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
}

fn read_unit(rest: &mut std::str::Chars) -> Option<u32> {
    let digits: String = rest.take(4).collect();
    u32::from_str_radix(&digits, 16).ok()
}

fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

fn file_info(path: &str) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        return Ok(format!("{path} is a folder with {} entries", fs::read_dir(path)?.count()));
    }
    let lines = fs::read(path)?.iter().filter(|byte| **byte == b'\n').count();
    let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
    Ok(format!("{path}: {} bytes, {lines} lines, changed {} s ago", metadata.len(), age.as_secs()))
}

fn answer(line: &str) -> String {
    let told = match text_under(line, "path") {
        Some(path) => file_info(&path).map_err(|problem| format!("Error: {path}: {problem}")),
        None => Err("Error: 'path' is missing".to_string()),
    };
    let (text, failed) = match told {
        Ok(text) => (text, false),
        Err(text) => (text, true),
    };
    format!(r#"{{"content":[{{"type":"text","text":"{}"}}],"error":{failed}}}"#, escaped(&text))
}

fn main() {
    let mut output = io::stdout();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let reply = if line.contains("\"type\":\"describe\"") {
            DEFINITION.to_string()
        } else if line.contains("\"type\":\"call\"") {
            answer(&line)
        } else {
            continue;
        };
        if writeln!(output, "{reply}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}
