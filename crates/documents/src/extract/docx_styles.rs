//! What a Word document defines outside its text: styles, numbered lists and the targets of links.

use std::collections::HashMap;

use super::ExtractResult;
use super::package::{ZipPackage, folder, resolve};
use super::xml::{self, Element};

/// The heading levels of paragraph styles, by style id.
pub(super) fn heading_levels(package: &mut ZipPackage<'_>) -> ExtractResult<HashMap<String, usize>> {
    let Some(data) = package.read("word/styles.xml")? else { return Ok(HashMap::new()) };
    let styles = xml::parse(&data)?;
    let level = |style: &Element| {
        let name = style.child("name")?.attribute("val")?.to_ascii_lowercase();
        if name == "title" {
            return Some(1);
        }
        let outline = style.child("pPr").and_then(|properties| properties.child("outlineLvl"));
        let outline = outline.and_then(|level| level.attribute("val")?.parse::<usize>().ok());
        let named = name.strip_prefix("heading ").and_then(|level| level.trim().parse().ok());
        named.or(outline.map(|level| level + 1)).filter(|level| (1..=9).contains(level))
    };
    let styles = styles.elements().filter(|style| &*style.name == "style");
    Ok(styles.filter_map(|style| Some((style.attribute("styleId")?.to_owned(), level(style)?))).collect())
}

/// The list definitions of a document, and the counters of its numbered lists.
#[derive(Default)]
pub(super) struct Numbering {
    /// For each abstract list (`abstractNum`): whether each of its levels is numbered.
    numbered: HashMap<String, Vec<bool>>,
    /// The id of the abstract list for the id of each list (`num`).
    lists: HashMap<String, String>,
    /// The last number used in each list and level.
    counters: HashMap<(String, usize), usize>,
}

impl Numbering {
    pub(super) fn read(package: &mut ZipPackage<'_>) -> ExtractResult<Self> {
        let Some(data) = package.read("word/numbering.xml")? else { return Ok(Self::default()) };
        let root = xml::parse(&data)?;
        let mut numbering = Self::default();
        for element in root.elements() {
            match &*element.name {
                "abstractNum" => {
                    let levels = element.elements().filter(|child| &*child.name == "lvl").map(|level| {
                        let format = level.child("numFmt").and_then(|format| format.attribute("val"));
                        !matches!(format, None | Some("bullet" | "none"))
                    });
                    let id = element.attribute("abstractNumId").unwrap_or_default().to_owned();
                    numbering.numbered.insert(id, levels.collect());
                }
                "num" => {
                    let list = element.child("abstractNumId").and_then(|id| id.attribute("val"));
                    let id = element.attribute("numId").unwrap_or_default().to_owned();
                    numbering.lists.insert(id, list.unwrap_or_default().to_owned());
                }
                _ => {}
            }
        }
        Ok(numbering)
    }

    /// The marker of the next item, `-` or a number; `None` if there is no such list.
    pub(super) fn marker(&mut self, list: &str, level: usize) -> Option<String> {
        let levels = self.numbered.get(self.lists.get(list)?)?;
        if !levels.get(level).copied().unwrap_or_default() {
            return Some("-".to_owned());
        }
        // Deeper levels start again.
        self.counters.retain(|(other, deeper), _| other != list || *deeper <= level);
        let number = self.counters.entry((list.to_owned(), level)).or_insert(0);
        *number += 1;
        Some(format!("{number}."))
    }
}

/// The relationships of a part: the target by id. Targets in the package are resolved to part names; external ones are
/// URLs.
pub(super) fn relationships(
    package: &mut ZipPackage<'_>,
    part: &str,
) -> ExtractResult<HashMap<String, String>> {
    let (folder, name) = (folder(part), part.rsplit('/').next().unwrap_or(part));
    let Some(data) = package.read(&resolve(folder, &format!("_rels/{name}.rels")))? else {
        return Ok(HashMap::new());
    };
    let root = xml::parse(&data)?;
    let target = |relationship: &Element| {
        let target = relationship.attribute("Target")?;
        let target = match relationship.attribute("TargetMode") {
            Some("External") => target.to_owned(),
            _ => resolve(folder, target),
        };
        Some((relationship.attribute("Id")?.to_owned(), target))
    };
    Ok(root.elements().filter_map(target).collect())
}
