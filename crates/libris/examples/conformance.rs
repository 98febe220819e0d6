//! The resources and prompts that the official conformance suite asks a server to have, from functions alone.

use libris::{Json, PromptMessage, Result, Uri};
use serde::Serialize;

/// A PNG picture of one pixel.
const PIXEL: [u8; 70] = [
    0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', 0, 0, 0, 13, b'I', b'H', b'D', b'R', 0, 0, 0, 1, 0, 0,
    0, 1, 8, 6, 0, 0, 0, 0x1f, 0x15, 0xc4, 0x89, 0, 0, 0, 13, b'I', b'D', b'A', b'T', 0x78, 0xda, 0x63, 0x64,
    0xf8, 0xcf, 0x50, 0x0f, 0, 3, 0x86, 1, 0x80, 0x5a, 0x34, 0x7d, 0x6b, 0, 0, 0, 0, b'I', b'E', b'N', b'D',
    0xae, 0x42, 0x60, 0x82,
];

struct Suite;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    id: String,
    template_test: bool,
    data: String,
}

#[libris::resources]
impl Suite {
    /// Text that never changes.
    #[resource("test://static-text", name = "static-text", mime = "text/plain")]
    fn text(&self) -> &'static str {
        "This is the content of the static text resource."
    }

    /// A PNG picture of one pixel.
    #[resource("test://static-binary", name = "static-binary", mime = "image/png")]
    fn picture(&self) -> &'static [u8] {
        &PIXEL
    }

    /// A resource to subscribe to.
    #[resource("test://watched-resource", name = "watched-resource", mime = "text/plain")]
    fn watched(&self) -> &'static str {
        "Nothing has happened yet."
    }

    /// Data made from an identifier.
    #[resource("test://template/{id}/data", name = "template", mime = "application/json")]
    async fn data(&self, id: String) -> Json<Data> {
        Json(Data { data: format!("Data for ID: {id}"), id, template_test: true })
    }

    /// A resource to embed in a prompt.
    #[resource("test://example-resource", name = "example-resource", mime = "text/plain")]
    fn example(&self) -> &'static str {
        "Embedded resource content for testing."
    }

    /// A prompt without arguments.
    #[prompt]
    fn test_simple_prompt(&self) -> &'static str {
        "This is a simple prompt for testing."
    }

    /// A prompt with two arguments.
    #[prompt]
    async fn test_prompt_with_arguments(&self, arg1: &str, arg2: String) -> String {
        format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
    }

    /// A prompt with the contents of a resource.
    #[prompt(name = "test_prompt_with_embedded_resource")]
    #[expect(non_snake_case, reason = "the suite calls the argument so")]
    fn embedded(&self, resourceUri: String) -> Result<Vec<PromptMessage>> {
        let resource = Uri::parse(&resourceUri)?;
        Ok(vec![
            PromptMessage::user(resource),
            PromptMessage::user("Please process the embedded resource above."),
        ])
    }

    /// A prompt with an image.
    #[prompt(name = "test_prompt_with_image", resources = ["test://static-binary"])]
    fn image(&self) -> Result<Vec<PromptMessage>> {
        let image = Uri::parse("test://static-binary")?;
        Ok(vec![PromptMessage::user(image), PromptMessage::user("Please analyze the image above.")])
    }

    #[complete("test://template/{id}/data", id)]
    fn ids(&self) -> Vec<&'static str> {
        vec!["1", "12", "123"]
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    libris::serve(Suite).http("127.0.0.1:0").await
}
