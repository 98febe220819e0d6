// The programs in Rust that the picker shows in its details. `tests/picker/units.test.mjs` compares them with this file.

async fn read_without_key(endpoint: &str, uri: &str) -> Result<String, Box<dyn std::error::Error>> {
use rmcp::ServiceExt;
use rmcp::model::ReadResourceRequestParams;
use rmcp::transport::StreamableHttpClientTransport;

let client = ().serve(StreamableHttpClientTransport::from_uri(endpoint)).await?;
let read = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
println!("{:?}", read.contents);
Ok(format!("{:?}", read.contents))
}

async fn read_with_key(endpoint: &str, uri: &str) -> Result<String, Box<dyn std::error::Error>> {
use rmcp::ServiceExt;
use rmcp::model::ReadResourceRequestParams;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

let config = StreamableHttpClientTransportConfig::with_uri(endpoint).auth_header(std::env::var("KEY")?);
let client = ().serve(StreamableHttpClientTransport::from_config(config)).await?;
let read = client.read_resource(ReadResourceRequestParams::new(uri)).await?;
println!("{:?}", read.contents);
Ok(format!("{:?}", read.contents))
}
