//! Mails and mailboxes.

use std::fmt::Write as _;

use mail_parser::mailbox::mbox::MessageIterator;
use mail_parser::{Address, Message, MessageParser, MimeHeaders as _, PartType};

use super::markdown::{heading, push_block};
use super::{ExtractFailure, ExtractResult};
use crate::{DocumentSection, ExtractedText, Format};

/// The maximum number of attachments that are listed by name.
const MAX_NAMED: usize = 20;

pub(super) fn extract(data: &[u8], format: Format) -> ExtractResult<ExtractedText> {
    let mut attachments = Vec::new();
    let mut title = None;
    let mut sections = Vec::new();
    match format {
        Format::Mbox => {
            for mail in MessageIterator::new(data) {
                let mail = mail.map_err(|_| ExtractFailure::damaged("it is not a mailbox"))?;
                sections.extend(section(mail.contents(), &mut attachments));
            }
        }
        _ => {
            let mail = section(data, &mut attachments);
            title = mail.as_ref().and_then(|mail| mail.name.clone());
            sections.extend(mail);
        }
    }
    if sections.is_empty() {
        return Err(ExtractFailure::damaged("it contains no mail"));
    }
    let more = attachments.len().saturating_sub(MAX_NAMED);
    attachments.truncate(MAX_NAMED);
    if more > 0 {
        attachments.push(format!("{more} more attachments"));
    }
    Ok(ExtractedText { format, title, sections, left_out: attachments })
}

fn section(data: &[u8], attachments: &mut Vec<String>) -> Option<DocumentSection> {
    let mail = MessageParser::default().parse(data)?;
    let subject = mail.subject().unwrap_or("(no subject)");
    let mut out = heading(1, subject);
    let mut headers = String::new();
    for (name, address) in [("From", mail.from()), ("To", mail.to()), ("Cc", mail.cc())] {
        if let Some(address) = address.map(people).filter(|people| !people.is_empty()) {
            let _ = writeln!(headers, "{name}: {address}  ");
        }
    }
    if let Some(date) = mail.date() {
        let _ = writeln!(headers, "Date: {}  ", date.to_rfc3339());
    }
    push_block(&mut out, &headers);
    push_block(&mut out, &body(&mail));
    for attachment in mail.attachments() {
        let name = attachment.attachment_name().unwrap_or("without a name");
        attachments.push(format!("the attachment `{name}` of {} bytes", attachment.len()));
    }
    Some(DocumentSection { name: Some(subject.to_owned()), text: out, table_head: None })
}

/// The names and addresses of a header, separated by commas.
fn people(address: &Address<'_>) -> String {
    let people = address.iter().map(|person| match (person.name(), person.address()) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        (name, address) => name.or(address).unwrap_or_default().to_owned(),
    });
    people.collect::<Vec<_>>().join(", ")
}

fn body(mail: &Message<'_>) -> String {
    let mut out = String::new();
    for part in mail.text_bodies() {
        match &part.body {
            PartType::Text(text) => push_block(&mut out, text),
            PartType::Html(html) => push_block(&mut out, &html_text(html)),
            _ => {}
        }
    }
    out
}

#[cfg(feature = "html")]
fn html_text(html: &str) -> String {
    super::html::markdown(html)
}

#[cfg(not(feature = "html"))]
fn html_text(html: &str) -> String {
    mail_parser::decoders::html::html_to_text(html)
}
