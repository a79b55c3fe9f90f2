//! The modules of a crate, with the names that each declares and the paths that it mentions.
//!
//! A file is read as tokens (`proc-macro2`), so that comments and strings are out of the way and a path
//! within a macro's arguments counts like any other. A path is mentioned by a `use`, or by itself where
//! it begins with `crate`, `super` or `self`; a path that begins with another name needs a `use` for
//! that name. Attributes name paths in strings (`serialize_with = "crate::run::by_name"`), which count.
//!
//! Items under `#[cfg(test)]` are left out, with their files.
//!
//! Limits: names that a macro declares are not seen, so that a glob import of them names nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};

/// Reads a file, if there is one.
type Read<'a> = dyn Fn(&Path) -> Option<String> + 'a;

/// The modules of a crate; the first is its root.
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
}

/// A module.
pub(super) struct Module {
    pub(super) name: String,
    pub(super) parent: Option<usize>,
    pub(super) file: PathBuf,
    /// The folder that the files of its children are in.
    folder: PathBuf,
    pub(super) names: BTreeMap<String, Name>,
    /// The paths whose names are all imported.
    pub(super) globs: Vec<Mention>,
    pub(super) mentions: Vec<Mention>,
}

/// The meaning of a name in a module.
#[derive(Debug, PartialEq)]
pub(super) enum Name {
    Child(usize),
    Item,
    Imported(Vec<String>),
}

/// A path and the line that mentions it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mention {
    pub(super) path: Vec<String>,
    pub(super) line: usize,
}

/// The keywords before the name of an item.
const ITEMS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "const", "static"];

/// The first words of a path that needs no `use`.
const ROOTS: [&str; 3] = ["crate", "super", "self"];

impl Tree {
    /// Reads the crate whose root is at `root`.
    pub(super) fn read(root: &Path, read: &Read<'_>) -> Result<Self> {
        let mut tree = Self { modules: Vec::new() };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.file("crate", None, root.to_owned(), folder, read)?;
        Ok(tree)
    }

    /// Adds a module and the file that it is in.
    fn file(
        &mut self,
        name: &str,
        parent: Option<usize>,
        file: PathBuf,
        folder: PathBuf,
        read: &Read<'_>,
    ) -> Result<usize> {
        let text = read(&file).with_context(|| format!("reading {}", file.display()))?;
        let tokens: TokenStream =
            text.parse().map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
        self.module(name, parent, file, folder, tokens, read)
    }

    /// Adds a module with its items.
    fn module(
        &mut self,
        name: &str,
        parent: Option<usize>,
        file: PathBuf,
        folder: PathBuf,
        items: TokenStream,
        read: &Read<'_>,
    ) -> Result<usize> {
        let at = self.modules.len();
        let name = name.to_owned();
        let (names, globs, mentions) = Default::default();
        self.modules.push(Module { name, parent, file, folder, names, globs, mentions });
        self.items(at, items, read)?;
        Ok(at)
    }

    /// Reads the items of a module.
    fn items(&mut self, at: usize, items: TokenStream, read: &Read<'_>) -> Result<()> {
        let tokens: Vec<TokenTree> = items.into_iter().collect();
        let mut i = 0;
        while i < tokens.len() {
            i += match &tokens[i..] {
                [TokenTree::Ident(word), TokenTree::Ident(name), rest @ ..] if word == "mod" => {
                    let name = name.to_string();
                    let child = match rest.first() {
                        Some(TokenTree::Group(body)) => {
                            let (file, folder) = (&self.modules[at].file, &self.modules[at].folder);
                            let (file, folder) = (file.clone(), folder.join(&name));
                            self.module(&name, Some(at), file, folder, body.stream(), read)?
                        }
                        _ => self.child_file(at, &name, read)?,
                    };
                    self.modules[at].names.insert(name, Name::Child(child));
                    3
                }
                [TokenTree::Ident(word), TokenTree::Ident(name), ..]
                    if ITEMS.iter().any(|item| word == item) =>
                {
                    self.modules[at].names.entry(name.to_string()).or_insert(Name::Item);
                    1
                }
                [TokenTree::Ident(word), TokenTree::Punct(_), TokenTree::Ident(name), ..]
                    if word == "macro_rules" =>
                {
                    self.modules[at].names.entry(name.to_string()).or_insert(Name::Item);
                    3
                }
                rest => self.token(at, rest, true),
            };
        }
        Ok(())
    }

    /// Adds the child `name` of a module, which has a file of its own.
    fn child_file(&mut self, at: usize, name: &str, read: &Read<'_>) -> Result<usize> {
        let folder = self.modules[at].folder.clone();
        let below = folder.join(name);
        for file in [folder.join(format!("{name}.rs")), below.join("mod.rs")] {
            if read(&file).is_some() {
                return self.file(name, Some(at), file, below, read);
            }
        }
        bail!("{}: no file for module {name}", self.modules[at].file.display())
    }

    /// Reads the tokens of a group that is not a module.
    fn tokens(&mut self, at: usize, stream: TokenStream) {
        let tokens: Vec<TokenTree> = stream.into_iter().collect();
        let mut i = 0;
        while i < tokens.len() {
            i += self.token(at, &tokens[i..], false);
        }
    }

    /// Reads the first of `tokens`, and those that belong to it; returns their number.
    fn token(&mut self, at: usize, tokens: &[TokenTree], is_item: bool) -> usize {
        match tokens {
            [TokenTree::Punct(hash), TokenTree::Group(attribute), rest @ ..]
                if hash.as_char() == '#' && attribute.delimiter() == Delimiter::Bracket =>
            {
                if is_test(&attribute.stream()) {
                    return 2 + length_of_item(rest);
                }
                self.strings(at, attribute.stream());
                self.tokens(at, attribute.stream());
                2
            }
            [TokenTree::Ident(word), rest @ ..] if word == "use" && !is_punct(rest, 0, '<') => {
                let is_end =
                    |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ';');
                let end = rest.iter().position(is_end).unwrap_or(rest.len());
                for import in imports(&[], &rest[..end]) {
                    self.import(at, import, is_item);
                }
                1 + end
            }
            // A path that goes on from another name (`Self::super`) cannot be: these words come first.
            [TokenTree::Ident(word), rest @ ..]
                if ROOTS.iter().any(|root| word == root) && is_path(rest, 0) =>
            {
                let mut path = vec![word.to_string()];
                let mut length = 1;
                while is_path(tokens, length) {
                    let Some(TokenTree::Ident(name)) = tokens.get(length + 2) else { break };
                    path.push(name.to_string());
                    length += 3;
                }
                self.modules[at].mentions.push(Mention { path, line: line(word.span()) });
                length
            }
            [TokenTree::Group(group), ..] => {
                self.tokens(at, group.stream());
                1
            }
            _ => 1,
        }
    }

    fn import(&mut self, at: usize, import: Import, is_item: bool) {
        let Import { path, name, line } = import;
        let module = &mut self.modules[at];
        let mention = Mention { path: path.clone(), line };
        match name {
            None => module.globs.push(mention.clone()),
            Some(name) if is_item => {
                module.names.entry(name).or_insert(Name::Imported(path));
            }
            Some(_) => {}
        }
        module.mentions.push(mention);
    }

    /// Reads the strings of an attribute that are paths.
    fn strings(&mut self, at: usize, attribute: TokenStream) {
        for token in attribute {
            match token {
                TokenTree::Group(group) => self.strings(at, group.stream()),
                TokenTree::Literal(literal) => {
                    let text = literal.to_string();
                    let path = text.trim_matches('"').split("::").map(str::to_owned);
                    let path: Vec<String> = path.collect();
                    if path.len() > 1 && ROOTS.contains(&path[0].as_str()) {
                        let line = line(literal.span());
                        self.modules[at].mentions.push(Mention { path, line });
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

/// One path of a `use`.
struct Import {
    path: Vec<String>,
    /// The name that it has here; none if all names below the path are imported.
    name: Option<String>,
    line: usize,
}

/// Lists the paths of a `use`, or of a part of one that begins with `prefix`.
fn imports(prefix: &[String], tokens: &[TokenTree]) -> Vec<Import> {
    let mut found = Vec::new();
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
    for part in tokens.split(is_comma) {
        let mut path = prefix.to_vec();
        let mut words = part.iter();
        let mut import = None;
        while let Some(token) = words.next() {
            let line = line(token.span());
            match token {
                TokenTree::Ident(word) if word == "as" => {
                    let name = words.next().map(ToString::to_string);
                    import = Some(Import { path: path.clone(), name, line });
                }
                // `{self, …}`: the prefix itself.
                TokenTree::Ident(word) if word == "self" && !path.is_empty() => {
                    import = Some(Import { path: path.clone(), name: path.last().cloned(), line });
                }
                TokenTree::Ident(word) => {
                    path.push(word.to_string());
                    let name = path.last().cloned();
                    import = Some(Import { path: path.clone(), name, line });
                }
                TokenTree::Punct(star) if star.as_char() == '*' => {
                    import = Some(Import { path: path.clone(), name: None, line });
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    found.extend(imports(&path, &inner));
                    import = None;
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        found.extend(import);
    }
    found
}

fn line(span: Span) -> usize {
    span.start().line
}

fn is_punct(tokens: &[TokenTree], at: usize, char: char) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(p)) if p.as_char() == char)
}

/// Returns whether `::` is at `at`.
fn is_path(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens, at, ':') && is_punct(tokens, at + 1, ':')
}

/// Returns whether an attribute is `cfg(test)` or `cfg(all(test, …))`.
fn is_test(attribute: &TokenStream) -> bool {
    let text: String = attribute.to_string().split_whitespace().collect();
    text == "cfg(test)" || text.starts_with("cfg(all(test,")
}

/// Returns the number of tokens up to the end of an item: its semicolon, or its braces but for those of
/// a `use`.
fn length_of_item(tokens: &[TokenTree]) -> usize {
    let is_use = |token: &TokenTree| matches!(token, TokenTree::Ident(word) if word == "use");
    let may_have_braces = tokens.iter().take(3).any(is_use);
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !may_have_braces,
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    };
    tokens.iter().position(is_end).map_or(tokens.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Tree {
        let one = |file: &Path| (file == Path::new("lib.rs")).then(|| text.to_owned());
        Tree::read(Path::new("lib.rs"), &one).unwrap()
    }

    fn mentions(text: &str) -> Vec<String> {
        let tree = read(text);
        let mentions = tree.modules[0].mentions.iter();
        mentions.map(|mention| format!("{}:{}", mention.line, mention.path.join("::"))).collect()
    }

    #[test]
    fn uses_and_paths_are_mentioned_with_their_lines() {
        let text = "use crate::a::{self, b::{C, D as E}, *};\nfn f() {\n  crate::x::y(super::Z::<u8>::new());\n  use self::g;\n  vec![$crate::h::I]\n}";
        assert_eq!(
            mentions(text),
            [
                "1:crate::a",
                "1:crate::a::b::C",
                "1:crate::a::b::D",
                "1:crate::a",
                "3:crate::x::y",
                "3:super::Z",
                "4:self::g",
                "5:crate::h::I"
            ]
        );
        assert_eq!(mentions("#[serde(with = \"super::f\")]\nstruct A;"), ["1:super::f"]);
    }

    #[test]
    fn comments_strings_and_visibilities_are_not_mentioned() {
        let text =
            "/// See crate::a.\npub(crate) fn f() { g(\"crate::b\"); /* crate::c */ self.d() }";
        assert!(mentions(text).is_empty());
        assert!(mentions("fn f<'a>() -> impl Iterator + use<'a> { h() }").is_empty());
    }

    #[test]
    fn tests_are_left_out() {
        let text = "#[cfg(test)]\nuse crate::{a, b};\n#[cfg(all(test, feature = \"std\"))]\nmod tests;\n#[cfg(test)]\nfn f() { crate::c() }\n#[cfg(not(test))]\nuse crate::d;";
        assert_eq!(mentions(text), ["8:crate::d"]);
    }

    #[test]
    fn names_are_declared_by_items_imports_and_children() {
        let text = "mod a { pub fn g() {} }\npub use a::g as h;\nuse std::fmt::Write as _;\npub(crate) const fn f() {}\nmacro_rules! m { () => {} }\nstruct S { x: u8 }";
        let tree = read(text);
        let names = &tree.modules[0].names;
        assert_eq!(names["a"], Name::Child(1));
        assert_eq!(names["h"], Name::Imported(vec!["a".to_owned(), "g".to_owned()]));
        assert!(["f", "m", "S"].iter().all(|name| names[*name] == Name::Item), "{names:?}");
        assert!(!names.contains_key("x"));
        assert_eq!(tree.modules[1].names["g"], Name::Item);
    }

    #[test]
    fn children_are_read_from_both_kinds_of_files() {
        let files = [
            ("src/lib.rs", "mod a;\nmod b;"),
            ("src/a.rs", "mod c;"),
            ("src/a/c.rs", ""),
            ("src/b/mod.rs", "mod d;"),
            ("src/b/d.rs", ""),
        ];
        let file = |file: &Path| {
            files
                .iter()
                .find(|(path, _)| file == Path::new(path))
                .map(|(_, text)| (*text).to_owned())
        };
        let tree = Tree::read(Path::new("src/lib.rs"), &file).unwrap();
        let names: Vec<&str> = tree.modules.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["crate", "a", "c", "b", "d"]);
        let none = |file: &Path| (file == Path::new("lib.rs")).then(|| "mod x;".to_owned());
        let error = Tree::read(Path::new("lib.rs"), &none).err().unwrap();
        assert_eq!(error.to_string(), "lib.rs: no file for module x");
    }
}
