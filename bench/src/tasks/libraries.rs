//! Four collections of resources with ten tasks each: a handbook, this repository, a database, and a folder of PDF
//! files.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::program::Binary;

/// A question, and the passage that answers it.
pub(super) struct Task {
    pub(super) question: &'static str,
    pub(super) passage: &'static str,
}

const fn task(question: &'static str, passage: &'static str) -> Task {
    Task { question, passage }
}

/// A collection of resources, and the tasks about it.
pub(super) struct Library {
    pub(super) name: &'static str,
    served: Served,
    pub(super) tasks: &'static [Task],
}

enum Served {
    Folder(PathBuf),
    Config(PathBuf),
}

impl Library {
    /// The command that serves the collection; the caller adds the transport.
    pub(super) fn command(&self, binary: &Binary) -> Command {
        match &self.served {
            Served::Folder(folder) => binary.command(folder),
            Served::Config(file) => binary.configured(file),
        }
    }
}

/// All collections. Files that do not exist yet are created in `folder`.
pub(super) fn all(folder: &Path) -> Result<[Library; 4]> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let shop = folder.join("shop.toml");
    let database = repository.join("examples/shop.db");
    fs::write(&shop, SHOP.replace("DATABASE", &database.display().to_string()))?;
    let papers = folder.join("papers");
    fs::create_dir(&papers)?;
    for (name, pages) in PAPERS {
        fs::write(papers.join(name), pdf(pages))?;
    }
    let handbook = Served::Folder(repository.join("examples/handbook"));
    Ok([
        Library { name: "handbook", served: handbook, tasks: HANDBOOK },
        Library { name: "repository", served: Served::Folder(repository), tasks: REPOSITORY },
        Library { name: "database", served: Served::Config(shop), tasks: DATABASE },
        Library { name: "papers", served: Served::Folder(papers), tasks: PAPER_TASKS },
    ])
}

const HANDBOOK: &[Task] = &[
    task("what do I do when nothing answers while I am on call", "restart the gateway"),
    task("it is slow, what should the person on call look at", "look at the database before anything else"),
    task("whom do I ask for my keys and laptop on the first day", "Ask Ada for your keys and a laptop"),
    task("when is lunch", "Lunch is at half past twelve"),
    task("who makes a decision", "Whoever will live with a decision makes it"),
    task("when do meetings end", "Meetings end five minutes before the hour"),
    task("who does support", "Support is everybody's job, one week each"),
    task("which repositories should I clone", "Clone the repositories that your team lists"),
    task("how many databases do we use", "One database until it hurts"),
    task("second on call wake", "wake the second on call"),
];

const REPOSITORY: &[Task] = &[
    task("how large is the response cache by default", "cache_bytes"),
    task("glibc does not return freed memory, which allocator is used", "mimalloc"),
    task("how do I add a source to the code", "A source is a folder in `crates/sources/src`"),
    task("percent encode bytes as one path segment", "pub fn encode_segment"),
    task("what happens to a source that fails while listing", "unavailable"),
    task("which rule decides about a caller, explain command", "libris explain"),
    task("maximum length of a URI in bytes", "LIMIT: usize = 8 * 1024"),
    task("reciprocal rank fusion of search answers", "Reciprocal rank fusion"),
    task("how are symbolic links treated by the files source", "symlinks = true"),
    task("error code for a resource that is not found", "-32002"),
];

const DATABASE: &[Task] = &[
    task("email address of Grace", "grace@shop.example"),
    task("which customer is vip", "Ada"),
    task("columns of the items table", "position"),
    task("fountain pen price", "Fountain pen"),
    task("what did the order with the ruler cost", "7.75"),
    task("how much did each customer spend, spending view", "spending"),
    task("foreign key of orders to users", "user_id"),
    task("theme setting of Ada", "dark"),
    task("which table holds the total of an order", "total"),
    task("paper price in orders", "3.2"),
];

/// The database with its rows as resources.
const SHOP: &str = "[[sql]]
url = \"sqlite:DATABASE\"

[[sql.query]]
uri = \"shop://customers\"
sql = \"SELECT * FROM users ORDER BY id\"
title = \"All customers: name, email, vip, settings\"
format = \"markdown\"

[[sql.query]]
uri = \"shop://items\"
sql = \"SELECT orders.id, placed, title, price FROM orders JOIN items ON order_id = orders.id ORDER BY orders.id, position\"
title = \"All ordered items with their prices\"
format = \"markdown\"
";

const PAPERS: &[(&str, &[&[&str]])] = &[
    (
        "migration.pdf",
        &[
            &["Bird migration in northern Europe", "", "The arctic tern flies from pole to pole every year."],
            &["Methods", "", "We fitted geolocators to forty terns on the island of Griend."],
            &["Results", "", "The longest journey was ninety thousand kilometres."],
        ],
    ),
    (
        "concrete.pdf",
        &[
            &["Self-healing concrete", "", "Bacteria in the mix precipitate limestone in cracks."],
            &["Strength", "", "After 28 days the compressive strength was 42 megapascal."],
        ],
    ),
    (
        "bread.pdf",
        &[
            &["Sourdough at low temperature", "", "Lactobacilli dominate below twenty degrees."],
            &["Recipe", "", "Let the dough rest for eighteen hours at eight degrees Celsius."],
        ],
    ),
    (
        "tides.pdf",
        &[
            &[
                "Tidal power in the Bay of Fundy",
                "",
                "The range between high and low water is sixteen metres.",
            ],
            &["Turbines", "", "Each turbine of the second generation delivers two megawatts."],
        ],
    ),
    (
        "chess.pdf",
        &[
            &["Opening books for computer chess", "", "The Berlin defence scores best for Black."],
            &["Endgames", "", "Tables of seven pieces take eighteen terabytes."],
        ],
    ),
];

const PAPER_TASKS: &[Task] = &[
    task("how far was the longest journey of a tern", "ninety thousand kilometres"),
    task("where were geolocators fitted", "island of Griend"),
    task("which bird flies from pole to pole", "arctic tern"),
    task("compressive strength of self-healing concrete", "42 megapascal"),
    task("what do bacteria precipitate in cracks", "limestone"),
    task("how long should sourdough rest", "eighteen hours"),
    task("tidal range in the Bay of Fundy", "sixteen metres"),
    task("power of a second generation turbine", "two megawatts"),
    task("size of seven piece endgame tables", "eighteen terabytes"),
    task("best defence for Black in opening books", "Berlin defence"),
];

/// Writes a PDF file with these lines on each page.
fn pdf(pages: &[&[&str]]) -> Vec<u8> {
    let mut objects = vec!["<< /Type /Catalog /Pages 2 0 R >>".to_owned()];
    let kids: Vec<_> = (0..pages.len()).map(|page| format!("{} 0 R", 4 + 2 * page)).collect();
    objects.push(format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), pages.len()));
    objects
        .push("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned());
    for (number, lines) in pages.iter().enumerate() {
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> /Contents {} 0 R >>",
            5 + 2 * number
        ));
        let mut stream = String::from("BT /F1 12 Tf 14 TL 72 770 Td\n");
        lines.iter().for_each(|line| _ = writeln!(stream, "({line}) Tj T*"));
        stream.push_str("ET");
        objects.push(format!("<< /Length {} >>\nstream\n{stream}\nendstream", stream.len()));
    }
    let mut file = String::from("%PDF-1.4\n");
    let mut offsets = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        offsets.push(file.len());
        _ = write!(file, "{} 0 obj\n{object}\nendobj\n", number + 1);
    }
    let start = file.len();
    _ = write!(file, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    offsets.iter().for_each(|offset| _ = writeln!(file, "{offset:010} 00000 n "));
    _ = write!(file, "trailer\n<< /Size {} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n", objects.len() + 1);
    file.into_bytes()
}
