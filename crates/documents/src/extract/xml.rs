//! A lenient parser that builds a small XML tree. Entities that a document defines are ignored, which rules out entity
//! bombs.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::{ExtractFailure, ExtractResult};

/// The deepest nesting of elements. It bounds the recursion of functions that walk the tree.
const MAX_DEPTH: usize = 256;

/// An element, without namespaces: names are local names.
#[derive(Debug, Default)]
pub(super) struct Element {
    pub(super) name: Box<str>,
    attributes: Vec<(Box<str>, Box<str>)>,
    pub(super) children: Vec<XmlNode>,
}

#[derive(Debug)]
pub(super) enum XmlNode {
    Element(Element),
    Text(String),
}

impl Element {
    /// The value of an attribute by its local name.
    pub(super) fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
    }

    /// The values of all attributes with this local name, whatever their namespace.
    pub(super) fn attributes_named(&self, name: &str) -> impl Iterator<Item = &str> {
        self.attributes.iter().filter(move |(known, _)| &**known == name).map(|(_, value)| &**value)
    }

    /// The child elements.
    pub(super) fn elements(&self) -> impl Iterator<Item = &Element> {
        self.children.iter().filter_map(|node| match node {
            XmlNode::Element(element) => Some(element),
            XmlNode::Text(_) => None,
        })
    }

    /// The first child element of this name.
    pub(super) fn child(&self, name: &str) -> Option<&Element> {
        self.elements().find(|child| &*child.name == name)
    }

    /// All elements of this name below this one, in document order.
    pub(super) fn descendants<'a>(&'a self, name: &'a str) -> Vec<&'a Element> {
        fn collect<'a>(element: &'a Element, name: &str, found: &mut Vec<&'a Element>) {
            for child in element.elements() {
                if &*child.name == name {
                    found.push(child);
                }
                collect(child, name, found);
            }
        }
        let mut found = Vec::new();
        collect(self, name, &mut found);
        found
    }

    /// All text below this element.
    pub(super) fn text(&self) -> String {
        fn collect(element: &Element, out: &mut String) {
            for child in &element.children {
                match child {
                    XmlNode::Text(text) => out.push_str(text),
                    XmlNode::Element(element) => collect(element, out),
                }
            }
        }
        let mut out = String::new();
        collect(self, &mut out);
        out
    }
}

/// Parses a document and returns its root element.
pub(super) fn parse(data: &[u8]) -> ExtractResult<Element> {
    let text = super::text::decode(data, None);
    let mut reader = Reader::from_str(&text);
    let config = reader.config_mut();
    config.check_end_names = false;
    config.allow_dangling_amp = true;
    config.allow_unmatched_ends = true;
    // The elements that are not closed yet. The first one is an artificial parent of the root.
    let mut open = vec![Element::default()];
    loop {
        match reader.read_event().map_err(ExtractFailure::damaged)? {
            Event::Start(start) => {
                if open.len() > MAX_DEPTH {
                    return Err(ExtractFailure::damaged("its XML is nested too deeply"));
                }
                open.push(element(&start));
            }
            Event::Empty(start) => add(&mut open, XmlNode::Element(element(&start))),
            Event::End(_) => {
                if open.len() > 1
                    && let Some(ended) = open.pop()
                {
                    add(&mut open, XmlNode::Element(ended));
                }
            }
            Event::Text(text) => add_text(&mut open, &text.xml10_content()),
            Event::CData(text) => add_text(&mut open, &text.xml10_content()),
            Event::GeneralRef(reference) => {
                if let Ok(Some(letter)) = reference.resolve_char_ref() {
                    add_text(&mut open, letter.encode_utf8(&mut [0; 4]));
                } else if let Some(letter) = predefined(&reference.xml10_content()) {
                    add_text(&mut open, letter);
                }
            }
            Event::Eof => break,
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    // Closes the elements that a truncated document leaves open.
    while open.len() > 1
        && let Some(ended) = open.pop()
    {
        add(&mut open, XmlNode::Element(ended));
    }
    let roots = open.pop().map(|container| container.children).unwrap_or_default();
    let root = roots.into_iter().find_map(|node| match node {
        XmlNode::Element(root) => Some(root),
        XmlNode::Text(_) => None,
    });
    root.ok_or_else(|| ExtractFailure::damaged("a part of it is not XML"))
}

/// The predefined entities of XML, and `&nbsp;`, which occurs in XHTML.
fn predefined(entity: &str) -> Option<&'static str> {
    Some(match entity {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        "nbsp" => "\u{a0}",
        _ => return None,
    })
}

fn element(start: &BytesStart<'_>) -> Element {
    let mut attributes = start.attributes();
    let attributes = attributes.with_checks(false).flatten().map(|attribute| {
        let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0);
        let value = value.unwrap_or_else(|_| attribute.value.clone());
        (attribute.key.local_name().as_ref().into(), (&*value).into())
    });
    Element {
        name: start.local_name().as_ref().into(),
        attributes: attributes.collect(),
        children: Vec::new(),
    }
}

fn add(open: &mut [Element], node: XmlNode) {
    if let Some(parent) = open.last_mut() {
        parent.children.push(node);
    }
}

fn add_text(open: &mut [Element], text: &str) {
    let Some(parent) = open.last_mut() else { return };
    match parent.children.last_mut() {
        Some(XmlNode::Text(before)) => before.push_str(text),
        _ => parent.children.push(XmlNode::Text(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn defined_entities_are_not_expanded() {
        let bomb =
            "<!DOCTYPE a [<!ENTITY b \"xxxxxxxx\"><!ENTITY c \"&b;&b;\">]><a d='&#65;'>&c;1 &lt;&#x41;</a>";
        let root = parse(bomb.as_bytes()).unwrap();
        assert_eq!((root.text().as_str(), root.attribute("d")), ("1 <A", Some("A")));
    }

    #[test]
    fn deep_nesting_is_refused_and_truncation_is_not() {
        assert!(parse("<a>".repeat(100_000).as_bytes()).is_err());
        let root = parse(b"<a><b>text").unwrap();
        assert_eq!(root.child("b").unwrap().text(), "text");
    }
}
