//! The main content of an HTML page, without navigation, headers and footers.
//!
//! No readability crate is used: they depend on the crates `selectors` and `cssparser`, whose licence, MPL-2.0, this
//! workspace avoids.

use std::collections::HashMap;
use std::rc::Rc;

use markup5ever_rcdom::{Handle, Node, NodeData};

/// The percentage of the page's text that an element marked as the main content must contain.
const MARKED_SHARE: usize = 20;

/// The percentage of the page's text that any other element must contain to be the main content.
const LARGE_SHARE: usize = 75;

/// The elements that [`count_elements`] counts: their content is not part of the text.
const COUNTED: [&str; 8] = ["img", "svg", "canvas", "iframe", "object", "video", "audio", "script"];

/// The text of `<title>`.
pub(super) fn title(tree: &Handle) -> Option<String> {
    let title = find(tree, &mut |node| name(node) == Some("title"))?;
    let mut text = String::new();
    collect_text(&title, &mut text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

/// How many elements of each of [`COUNTED`] a page has.
pub(super) fn count_elements(tree: &Handle) -> HashMap<&'static str, usize> {
    let mut counts = HashMap::new();
    // Not recursive: elements can be nested deeply.
    let mut left = vec![tree.clone()];
    while let Some(node) = left.pop() {
        if let Some(counted) = name(&node).and_then(|name| COUNTED.iter().find(|counted| **counted == name)) {
            *counts.entry(*counted).or_default() += 1;
        }
        left.extend(node.children.borrow().iter().cloned());
    }
    counts
}

/// Removes everything but the main content from a page, and returns whether it removed text.
pub(super) fn keep_main(tree: &Handle) -> bool {
    let Some(body) = find(tree, &mut |node| name(node) == Some("body")) else { return false };
    let before = text_length(&body);
    remove(&body, &mut |node| is_furniture(node));
    let all = text_length(&body);
    let marked = find(&body, &mut |node| is_marked(node) && text_length(node) * 100 >= all * MARKED_SHARE);
    let kept = marked.or_else(|| largest(&body, all));
    let Some(main) = kept else { return all < before };
    let after = text_length(&main);
    // The elements from the main content up to the body, whose other children are removed.
    let mut path = vec![main.clone()];
    while let Some(parent) = parent(path.last().unwrap_or(&main)) {
        if Rc::ptr_eq(&parent, &body) {
            break;
        }
        path.push(parent);
    }
    let mut at = body.clone();
    while let Some(child) = path.pop() {
        at.children.borrow_mut().retain(|other| Rc::ptr_eq(other, &child));
        at = child;
    }
    after < before
}

fn name(node: &Node) -> Option<&str> {
    match &node.data {
        NodeData::Element { name, .. } => Some(&name.local),
        _ => None,
    }
}

fn attribute(node: &Node, wanted: &str) -> Option<String> {
    match &node.data {
        NodeData::Element { attrs, .. } => {
            let attributes = attrs.borrow();
            let found = attributes.iter().find(|attribute| &*attribute.name.local == wanted)?;
            Some(found.value.to_string())
        }
        _ => None,
    }
}

/// Whether the author marked an element as the main content.
fn is_marked(node: &Node) -> bool {
    name(node) == Some("main")
        || name(node) == Some("article")
        || attribute(node, "role").as_deref() == Some("main")
}

/// Whether an element is navigation, a page header or footer, a form control, or hidden.
fn is_furniture(node: &Node) -> bool {
    let role = attribute(node, "role");
    let roles = ["navigation", "banner", "contentinfo", "complementary", "search", "menu"];
    match name(node) {
        Some("nav" | "aside" | "footer" | "form" | "button" | "dialog" | "menu") => true,
        // A header that contains a title belongs to the content.
        Some("header") => find_below(node, &mut |below| matches!(name(below), Some("h1" | "h2"))).is_none(),
        Some(_) => {
            role.is_some_and(|role| roles.contains(&&*role))
                || attribute(node, "hidden").is_some()
                || attribute(node, "aria-hidden").as_deref() == Some("true")
        }
        None => false,
    }
}

/// The deepest container that has [`LARGE_SHARE`] of the text outside links.
fn largest(body: &Handle, all: usize) -> Option<Handle> {
    let mut lengths = HashMap::new();
    measure(body, false, &mut lengths);
    let mut at = body.clone();
    let mut found = None;
    loop {
        let most = {
            let children = at.children.borrow();
            let length = |node: &&Handle| lengths.get(&Rc::as_ptr(node)).copied().unwrap_or(0);
            children.iter().filter(|child| name(child).is_some()).max_by_key(length).cloned()
        }?;
        let length = lengths.get(&Rc::as_ptr(&most)).copied().unwrap_or(0);
        let total = lengths.get(&Rc::as_ptr(body)).copied().unwrap_or(0);
        if length * 100 < total * LARGE_SHARE || all == 0 {
            return found;
        }
        // Does not descend into a single paragraph or table once a container is found.
        if !matches!(name(&most), Some("div" | "section" | "article" | "main" | "td")) && found.is_some() {
            return found;
        }
        if matches!(name(&most), Some("div" | "section" | "article" | "main")) {
            found = Some(most.clone());
        }
        at = most;
    }
}

/// Records the length of the text outside links for each node below `node`, and returns that of `node`.
fn measure(node: &Handle, in_link: bool, lengths: &mut HashMap<*const Node, usize>) -> usize {
    let in_link = in_link || name(node) == Some("a");
    let own = match &node.data {
        NodeData::Text { contents } if !in_link => contents.borrow().trim().len(),
        _ => 0,
    };
    let below: usize = node.children.borrow().iter().map(|child| measure(child, in_link, lengths)).sum();
    lengths.insert(Rc::as_ptr(node), own + below);
    own + below
}

/// The length of the visible text below a node, without white space around it.
fn text_length(node: &Node) -> usize {
    let own = match &node.data {
        NodeData::Text { contents } => contents.borrow().trim().len(),
        _ if matches!(name(node), Some("script" | "style" | "noscript" | "template")) => return 0,
        _ => 0,
    };
    own + node.children.borrow().iter().map(|child| text_length(child)).sum::<usize>()
}

fn collect_text(node: &Node, out: &mut String) {
    if let NodeData::Text { contents } = &node.data {
        out.push_str(&contents.borrow());
    }
    node.children.borrow().iter().for_each(|child| collect_text(child, out));
}

/// The first element in document order that satisfies a condition.
fn find(node: &Handle, condition: &mut dyn FnMut(&Node) -> bool) -> Option<Handle> {
    if condition(node) {
        return Some(node.clone());
    }
    find_below(node, condition)
}

fn find_below(node: &Node, condition: &mut dyn FnMut(&Node) -> bool) -> Option<Handle> {
    node.children.borrow().iter().find_map(|child| find(child, condition))
}

/// Removes the elements that satisfy a condition.
fn remove(node: &Node, condition: &mut dyn FnMut(&Node) -> bool) {
    node.children.borrow_mut().retain(|child| !condition(child));
    node.children.borrow().iter().for_each(|child| remove(child, condition));
}

fn parent(node: &Node) -> Option<Handle> {
    let weak = node.parent.take();
    let parent = weak.as_ref().and_then(std::rc::Weak::upgrade);
    node.parent.set(weak);
    parent
}
