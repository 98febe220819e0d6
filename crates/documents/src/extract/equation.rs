//! Equations of Word and PowerPoint documents (OMML) as LaTeX, which Markdown readers and models understand.

use super::xml::Element;

/// An equation in a line of text.
pub(super) fn inline(math: &Element) -> String {
    match latex(math).trim() {
        "" => String::new(),
        equation => format!("${equation}$"),
    }
}

/// Equations in a paragraph of their own.
pub(super) fn display(paragraph: &Element) -> String {
    let equations = paragraph.elements().filter(|child| &*child.name == "oMath").map(latex);
    let equations: Vec<_> = equations.filter(|equation| !equation.trim().is_empty()).collect();
    match equations.is_empty() {
        true => String::new(),
        false => format!("$${}$$", equations.join(" \\\\ ").trim()),
    }
}

/// The LaTeX of all elements in a container.
fn latex(parent: &Element) -> String {
    let mut out = String::new();
    for element in parent.elements() {
        // Properties, and deleted text.
        if element.name.ends_with("Pr") || matches!(&*element.name, "del" | "moveFrom") {
            continue;
        }
        push(&mut out, &structure(element));
    }
    out
}

/// Appends LaTeX. A command that ends with a letter needs a space before another letter.
fn push(out: &mut String, text: &str) {
    let command = out.rfind('\\').map(|at| &out[at + 1..]);
    let ends_command = command.is_some_and(|name| !name.is_empty() && name.chars().all(char::is_alphabetic));
    if ends_command && text.starts_with(char::is_alphanumeric) {
        out.push(' ');
    }
    out.push_str(text);
}

/// The LaTeX of an element.
fn structure(element: &Element) -> String {
    let part = |name: &str| element.child(name).map(latex).unwrap_or_default();
    match &*element.name {
        "r" => run(element),
        "f" => match property(element, "type") {
            Some("lin" | "skw") => format!("{{{}}}/{{{}}}", part("num"), part("den")),
            Some("noBar") => format!("{{{} \\atop {}}}", part("num"), part("den")),
            _ => format!("\\frac{{{}}}{{{}}}", part("num"), part("den")),
        },
        "sSup" => format!("{}^{{{}}}", base(&part("e")), part("sup")),
        "sSub" => format!("{}_{{{}}}", base(&part("e")), part("sub")),
        "sSubSup" => format!("{}_{{{}}}^{{{}}}", base(&part("e")), part("sub"), part("sup")),
        "sPre" => format!("{{}}_{{{}}}^{{{}}}{}", part("sub"), part("sup"), base(&part("e"))),
        "rad" => match part("deg") {
            degree if degree.is_empty() => format!("\\sqrt{{{}}}", part("e")),
            degree => format!("\\sqrt[{degree}]{{{}}}", part("e")),
        },
        "nary" => {
            let operator = symbols(property(element, "chr").unwrap_or("∫"));
            format!("{operator}_{{{}}}^{{{}}}{{{}}}", part("sub"), part("sup"), part("e"))
        }
        "d" => delimited(element),
        "func" => {
            let name = part("fName");
            let slash = if FUNCTIONS.contains(&name.trim()) { "\\" } else { "" };
            format!("{slash}{}{{{}}}", name.trim(), part("e"))
        }
        "acc" => accented(property(element, "chr").unwrap_or("\u{302}"), &part("e")),
        "bar" => match property(element, "pos") {
            Some("top") => format!("\\overline{{{}}}", part("e")),
            _ => format!("\\underline{{{}}}", part("e")),
        },
        "groupChr" => match (property(element, "chr").unwrap_or("⏟"), property(element, "pos")) {
            ("⏟", _) => format!("\\underbrace{{{}}}", part("e")),
            ("⏞", _) => format!("\\overbrace{{{}}}", part("e")),
            (letter, Some("top")) => format!("\\overset{{{}}}{{{}}}", symbols(letter), part("e")),
            (letter, _) => format!("\\underset{{{}}}{{{}}}", symbols(letter), part("e")),
        },
        "limLow" => format!("\\underset{{{}}}{{{}}}", part("lim"), part("e")),
        "limUpp" => format!("\\overset{{{}}}{{{}}}", part("lim"), part("e")),
        "m" => {
            let rows = element.elements().filter(|row| &*row.name == "mr");
            let rows: Vec<_> = rows.map(|row| elements(row).join(" & ")).collect();
            format!("\\begin{{matrix}}{}\\end{{matrix}}", rows.join(" \\\\ "))
        }
        "eqArr" => format!("\\begin{{aligned}}{}\\end{{aligned}}", elements(element).join(" \\\\ ")),
        // Text outside a run. Other elements, such as boxes and links, are containers: only their content is converted.
        "t" => symbols(&element.text()),
        _ => latex(element),
    }
}

/// The LaTeX of each `e` in an element.
fn elements(parent: &Element) -> Vec<String> {
    parent.elements().filter(|child| &*child.name == "e").map(latex).collect()
}

/// The value of a property, such as `chr` in `accPr`.
fn property<'a>(element: &'a Element, name: &str) -> Option<&'a str> {
    let properties = element.elements().find(|child| child.name.ends_with("Pr"))?;
    properties.child(name)?.attribute("val")
}

/// The base of a subscript or superscript, in braces unless it is one character.
fn base(text: &str) -> String {
    if text.chars().count() == 1 { text.to_owned() } else { format!("{{{text}}}") }
}

/// The LaTeX of a run: in `\text` if it is normal text, in `\mathbb`, `\mathcal`, `\mathfrak` or `\mathbf` if its
/// properties name such a font, otherwise without a font command.
fn run(element: &Element) -> String {
    let text: String = element.elements().filter(|child| &*child.name == "t").map(Element::text).collect();
    let properties = element.child("rPr");
    if properties.is_some_and(|properties| properties.child("nor").is_some()) {
        return format!("\\text{{{text}}}");
    }
    let alphabet = match (property(element, "scr"), property(element, "sty")) {
        (Some("double-struck"), _) => "mathbb",
        (Some("script"), _) => "mathcal",
        (Some("fraktur"), _) => "mathfrak",
        (_, Some("b" | "bi")) => "mathbf",
        _ => return symbols(&text),
    };
    format!("\\{alphabet}{{{}}}", symbols(&text))
}

/// The `e` elements of a `d`, between delimiters that grow with the content (`\left`, `\right`). Parentheses around
/// content without commands stay plain.
fn delimited(element: &Element) -> String {
    let begin = property(element, "begChr").unwrap_or("(");
    let end = property(element, "endChr").unwrap_or(")");
    let separator = property(element, "sepChr").unwrap_or("|");
    let content = elements(element).join(&symbols(separator));
    if begin == "(" && end == ")" && !content.contains('\\') {
        return format!("({content})");
    }
    format!("\\left{} {content} \\right{}", delimiter(begin), delimiter(end))
}

fn delimiter(letter: &str) -> String {
    match letter {
        "" => ".".to_owned(),
        "[" => "\\lbrack".to_owned(),
        "]" => "\\rbrack".to_owned(),
        "\u{2329}" | "\u{27e8}" | "\u{3008}" => "\\langle".to_owned(),
        "\u{232a}" | "\u{27e9}" | "\u{3009}" => "\\rangle".to_owned(),
        "‖" => "\\|".to_owned(),
        letter => symbols(letter),
    }
}

fn accented(accent: &str, text: &str) -> String {
    let command = match accent {
        "\u{302}" => "widehat",
        "\u{303}" => "widetilde",
        "\u{300}" => "grave",
        "\u{301}" => "acute",
        "\u{304}" | "\u{305}" => "overline",
        "\u{306}" => "breve",
        "\u{307}" => "dot",
        "\u{308}" => "ddot",
        "\u{30c}" => "check",
        "\u{20d7}" => "overrightarrow",
        other => return format!("\\overset{{{other}}}{{{text}}}"),
    };
    format!("\\{command}{{{text}}}")
}

/// Functions that are commands of LaTeX.
const FUNCTIONS: [&str; 17] = [
    "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "log",
    "ln", "lim", "max", "min",
];

/// Characters that are commands of LaTeX.
const SYMBOLS: &str = "α alpha β beta γ gamma δ delta ε varepsilon ϵ epsilon ζ zeta η eta θ theta ι iota κ kappa \
    λ lambda μ mu ν nu ξ xi π pi ρ rho σ sigma τ tau υ upsilon φ varphi ϕ phi χ chi ψ psi ω omega Γ Gamma Δ Delta \
    Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Φ Phi Ψ Psi Ω Omega ∑ sum ∏ prod ∫ int ∬ iint ∭ iiint ∮ oint ⋃ bigcup \
    ⋂ bigcap ∞ infty ∂ partial ∇ nabla × times ÷ div · cdot ⋅ cdot ± pm ∓ mp ≤ leq ≥ geq ≠ neq ≈ approx ≡ equiv \
    ∼ sim ∝ propto ∈ in ∉ notin ⊂ subset ⊆ subseteq ∪ cup ∩ cap ∀ forall ∃ exists ¬ neg ∧ land ∨ lor → rightarrow \
    ← leftarrow ↔ leftrightarrow ⇒ Rightarrow ⇔ Leftrightarrow … ldots ⋯ cdots ℏ hbar ℵ aleph ∅ varnothing";

/// Text with special characters escaped and symbols as commands.
fn symbols(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '#' | '%' | '&' | '_' | '$' | '{' | '}' => out.extend(['\\', letter]),
            '\\' => out.push_str("\\backslash"),
            // The differential and the constants e and i, which Word writes double-struck.
            'ⅆ' => out.push_str("\\mathbb{d}"),
            'ⅇ' => out.push_str("\\mathbb{e}"),
            'ⅈ' => out.push_str("\\mathbb{i}"),
            letter if letter.is_ascii() => push(&mut out, letter.encode_utf8(&mut [0; 4])),
            letter => match command(letter) {
                Some(name) => out.push_str(&format!("\\{name}")),
                None => push(&mut out, letter.encode_utf8(&mut [0; 4])),
            },
        }
    }
    out
}

/// The command for a symbol.
fn command(letter: char) -> Option<&'static str> {
    let mut words = SYMBOLS.split_whitespace();
    while let (Some(symbol), Some(name)) = (words.next(), words.next()) {
        if symbol.starts_with(letter) {
            return Some(name);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::xml::parse;
    use super::{display, inline};

    fn of(math: &str) -> String {
        inline(&parse(format!("<m:oMath>{math}</m:oMath>").as_bytes()).unwrap())
    }

    fn r(text: &str) -> String {
        format!("<m:r><m:t>{text}</m:t></m:r>")
    }

    #[test]
    fn structures_are_commands() {
        let [a, b, n] = ["a", "b", "n"].map(r);
        let fraction = format!("<m:f><m:num>{a}</m:num><m:den>{b}</m:den></m:f>");
        assert_eq!(of(&fraction), "$\\frac{a}{b}$");
        assert_eq!(of(&format!("<m:d><m:e>{fraction}</m:e></m:d>")), "$\\left( \\frac{a}{b} \\right)$");
        assert_eq!(of(&format!("<m:sSup><m:e>{a}</m:e><m:sup>{n}</m:sup></m:sSup>")), "$a^{n}$");
        assert_eq!(of(&format!("<m:rad><m:deg/><m:e>{a}</m:e></m:rad>")), "$\\sqrt{a}$");
        assert_eq!(of(&format!("<m:rad><m:deg>{n}</m:deg><m:e>{a}</m:e></m:rad>")), "$\\sqrt[n]{a}$");
        let sum = format!(
            "<m:nary><m:naryPr><m:chr m:val=\"∑\"/></m:naryPr><m:sub>{a}</m:sub><m:sup>{n}</m:sup><m:e>{b}</m:e></m:nary>"
        );
        assert_eq!(of(&sum), "$\\sum_{a}^{n}{b}$");
        let matrix =
            format!("<m:m><m:mr><m:e>{a}</m:e><m:e>{b}</m:e></m:mr><m:mr><m:e>{n}</m:e></m:mr></m:m>");
        assert_eq!(of(&matrix), "$\\begin{matrix}a & b \\\\ n\\end{matrix}$");
        assert_eq!(
            of(&format!("<m:func><m:fName>{}</m:fName><m:e>{a}</m:e></m:func>", r("sin"))),
            "$\\sin{a}$"
        );
        assert_eq!(of(&format!("<m:acc><m:e>{a}</m:e></m:acc>")), "$\\widehat{a}$");
        let bold = "<m:r><m:rPr><m:sty m:val=\"b\"/></m:rPr><m:t>x</m:t></m:r>";
        assert_eq!(of(bold), "$\\mathbf{x}$");
        assert_eq!(of(""), "");
        let paragraph =
            parse(format!("<m:oMathPara><m:oMath>{a}</m:oMath></m:oMathPara>").as_bytes()).unwrap();
        assert_eq!(display(&paragraph), "$$a$$");
    }

    #[test]
    fn symbols_are_commands_and_special_characters_are_escaped() {
        assert_eq!(of(&r("2πr+α")), "$2\\pi r+\\alpha$");
        assert_eq!(of(&(r("π") + &r("x") + &r("50%"))), "$\\pi x50\\%$");
    }
}
