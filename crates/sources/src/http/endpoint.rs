//! An endpoint: a URL with variables, headers and a query.
//!
//! Values are percent-encoded, and the host is never a variable, so a value cannot change the structure of the URL.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue};
use libris_core::uri_template::{VariableValue, Variables};
use libris_core::{Uri, UriTemplate};
use url::Url;

use super::config::{Config, EnvironmentSecret, Method, TextOrSecret};
use super::fault::HttpFault;
use super::guard::AddressGuard;
use crate::{suggest, wrong_uri};

/// The request for a resource, a template or a list.
#[derive(Debug)]
pub(super) struct ApiEndpoint {
    /// A unique number within the source.
    pub(super) number: usize,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    /// The expected media type of the response.
    pub(super) mime: Option<String>,
    url: UriTemplate,
    origin: String,
    /// The variables in the path.
    path_variables: Vec<String>,
    /// The URL template up to its query, to match URLs against; `None` if the template has a literal query, as in
    /// `?a=b`.
    path: Option<UriTemplate>,
    /// The variables that must have a value, even if the template syntax makes them optional.
    required: Vec<String>,
    /// The allowed values by variable; a variable without an entry may have any value.
    allowed: BTreeMap<String, Vec<String>>,
    /// Maps a variable of the resource's URI template to its name in the URL.
    renamed: BTreeMap<String, String>,
    /// The constant query parameters of every request, encoded.
    query: String,
}

/// The configuration of an endpoint.
pub(super) struct EndpointSpec<'a> {
    pub(super) url: &'a str,
    pub(super) method: Method,
    pub(super) headers: &'a BTreeMap<String, TextOrSecret>,
    pub(super) query: &'a BTreeMap<String, TextOrSecret>,
    pub(super) mime: Option<&'a str>,
    pub(super) required: &'a [String],
    pub(super) allowed: Option<&'a BTreeMap<String, Vec<String>>>,
    pub(super) renamed: Option<&'a BTreeMap<String, String>>,
    /// The variables that the URL may contain.
    pub(super) variables: Vec<&'a str>,
}

impl<'a> EndpointSpec<'a> {
    /// `GET` of a URL without variables, with only the headers and the query of the source.
    pub(super) fn new(url: &'a str) -> Self {
        static NOTHING: BTreeMap<String, TextOrSecret> = BTreeMap::new();
        Self {
            url,
            method: Method::GET,
            headers: &NOTHING,
            query: &NOTHING,
            mime: None,
            required: &[],
            allowed: None,
            renamed: None,
            variables: Vec::new(),
        }
    }
}

impl ApiEndpoint {
    /// Validates the configuration. Errors do not name the configuration entry; the caller adds that.
    pub(super) fn new(
        spec: EndpointSpec<'_>,
        number: usize,
        config: &Config,
        guard: &AddressGuard,
    ) -> Result<Self, String> {
        let text = joined(config.base.as_deref(), spec.url)?;
        let end = authority_end(&text)?;
        let base_url = Url::parse(&text[..end])
            .map_err(|cause| format!("its URL cannot be used: {cause}; hint: correct `url` or `base`"))?;
        check_host(&base_url, guard)?;
        let template = UriTemplate::parse(&text).map_err(|cause| cause.to_string())?;
        let upstream = |name: &str| {
            spec.renamed.and_then(|renamed| renamed.get(name)).map_or(name, String::as_str).to_owned()
        };
        let known: Vec<_> = spec.variables.iter().map(|name| upstream(name)).collect();
        if let Some(unknown) = template.variables().find(|name| !known.iter().any(|known| known == name)) {
            return Err(match known.is_empty() {
                true => format!(
                    "`url` uses the variable `{unknown}`, but cannot have variables here; hint: remove it, or add a \
                             `[[http.template]]`"
                ),
                false => {
                    format!(
                        "`url` uses the variable `{unknown}`, which the template in `uri` does not define; hint: add it to \
                         `uri`, or remove it"
                    )
                }
            });
        }
        let query_start = text.find("{?").into_iter().chain(text.find('?')).min().unwrap_or(text.len());
        let path_template = UriTemplate::parse(&text[..query_start]).map_err(|cause| cause.to_string())?;
        let path_variables = path_template.variables().map(str::to_owned).collect();
        let endpoint = Self {
            number,
            method: spec.method,
            headers: headers([&config.headers, spec.headers], spec.mime)?,
            mime: spec.mime.map(str::to_owned),
            origin: base_url.origin().ascii_serialization(),
            path_variables,
            path: (!text.contains('?') || text[query_start..].starts_with("{?")).then_some(path_template),
            required: spec.required.to_vec(),
            allowed: spec.allowed.cloned().unwrap_or_default(),
            renamed: spec.renamed.cloned().unwrap_or_default(),
            query: query([&config.query, spec.query])?,
            url: template,
        };
        // The check uses sample values: whether the URL is valid does not depend on the values.
        let sample = endpoint.url.variables().map(|name| (name, "x")).collect();
        endpoint
            .expand_url(&sample)
            .ok_or("its URL is not in normal form; hint: write it without `.` and `..` segments")?;
        let sample = endpoint.url.expand(&sample).map_err(|cause| cause.to_string())?;
        let own = parameters(sample.split_once('?').map_or("", |(_, query)| query));
        // A parameter must not be sent twice: a service that uses the first value would use the caller's value
        // instead of the configured one.
        match parameters(&endpoint.query).into_iter().find(|name| own.contains(name)) {
            Some(name) => Err(format!(
                "its URL has the parameter `{name}`, which `query` sets; hint: remove one of them"
            )),
            None => Ok(endpoint),
        }
    }

    /// The origin (scheme, host and port) of all its requests.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether the URL contains this variable.
    pub(super) fn has_variable(&self, name: &str) -> bool {
        self.url.variables().any(|variable| variable == name)
    }

    /// Whether a variable of the URL that is not optional in the template syntax (`{x}`, not `{?x}`) has no value.
    pub(super) fn lacks_required(&self, variables: &Variables) -> bool {
        self.url.variables().any(|name| variables.value(name).is_none() && !self.url.is_optional(name))
    }

    /// Validates these values and expands the URL with them.
    pub(super) fn url(&self, variables: Variables) -> Result<Url, HttpFault> {
        if let Some(lacking) = self.required.iter().find(|name| variables.value(name).is_none()) {
            return Err(HttpFault::MissingVariable(lacking.clone()));
        }
        let mut named = Variables::new();
        for (name, value) in variables {
            self.check_allowed(&name, &value)?;
            let name = self.renamed.get(&name).cloned().unwrap_or(name);
            self.check(&name, &value)?;
            named.insert(name, value);
        }
        self.expand_url(&named).ok_or(HttpFault::Missing)
    }

    /// What the response to a request to `url` depends on. Contains credentials.
    pub(super) fn replica_key(&self, url: &Url) -> String {
        let headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        format!("{:?} {url} {:?} {:?}", self.method, self.mime, headers.collect::<Vec<_>>())
    }

    /// Checks a value against the allowed values of its variable.
    fn check_allowed(&self, name: &str, value: &VariableValue) -> Result<(), HttpFault> {
        /// The maximum number of values that the error names.
        const MAX_NAMED: usize = 20;
        let Some(allowed) = self.allowed.get(name) else { return Ok(()) };
        let values = match value {
            VariableValue::Text(text) => std::slice::from_ref(text),
            VariableValue::List(list) => list,
            VariableValue::Map(_) => &[],
        };
        let Some(wrong) = values.iter().find(|value| !allowed.contains(value)) else { return Ok(()) };
        let mut named = wrong_uri::all_of(&allowed[..allowed.len().min(MAX_NAMED)]);
        if allowed.len() > MAX_NAMED {
            named += &format!(" and {} more", allowed.len() - MAX_NAMED);
        }
        let meant = suggest::did_you_mean(wrong, allowed.iter().map(String::as_str));
        Err(HttpFault::InvalidChoice(format!("`{name}` cannot be `{wrong}`: its values are {named}{meant}")))
    }

    /// Matches a URL, such as a next-page link, against this endpoint and returns its variables; `None` if it does not
    /// match.
    pub(super) fn variables_of(&self, url: &Url) -> Option<Variables> {
        let path = Uri::parse(&url[..url::Position::AfterPath]).ok()?;
        let mut variables = self.path.as_ref()?.matches(&path)?;
        variables.extend(self.query_of(url)?);
        Some(self.named_here(variables))
    }

    /// Like [`variables_of`](Self::variables_of), but ignores the path of `url`: path variables are taken from
    /// `variables`, query variables from `url`. `None` if the query has a parameter that is neither a variable nor
    /// constant.
    pub(super) fn with_query_of(&self, url: &Url, variables: &Variables) -> Option<Variables> {
        let query = self.query_of(url)?;
        let is_in_path =
            |name: &str| self.path_variables.iter().any(|variable| variable == self.upstream(name));
        let kept = variables.iter().filter(|(name, _)| is_in_path(name));
        let mut variables: Variables = kept.map(|(name, value)| (name, value.clone())).collect();
        variables.extend(self.named_here(query));
        Some(variables)
    }

    /// The variables in the query of a URL, ignoring the constant parameters; `None` if a parameter is not a variable
    /// of the URL, or occurs several times although its variable takes one value, or if the URL template has a literal
    /// query.
    fn query_of(&self, url: &Url) -> Option<Variables> {
        self.path.as_ref()?;
        let constant = parameters(&self.query);
        let mut variables = Variables::new();
        for (key, value) in url.query_pairs().filter(|(key, _)| !constant.iter().any(|name| name == key)) {
            let mut names =
                self.url.variables().filter(|name| !self.path_variables.iter().any(|path| path == name));
            let is_key = |name: &&str| Uri::decode_segment(name).is_some_and(|name| name == key.as_bytes());
            let name = names.find(is_key)?;
            let value = match (self.url.explodes(name), variables.value(name)) {
                (false, None) => VariableValue::Text(value.into_owned()),
                (false, Some(_)) => return None,
                (true, Some(VariableValue::List(list))) => {
                    VariableValue::List(list.iter().cloned().chain([value.into_owned()]).collect())
                }
                (true, _) => VariableValue::List(vec![value.into_owned()]),
            };
            variables.insert(name, value);
        }
        Some(variables)
    }

    /// The name that a variable of the resource's URI template has in the URL.
    fn upstream<'n>(&'n self, name: &'n str) -> &'n str {
        self.renamed.get(name).map_or(name, String::as_str)
    }

    /// Renames variables of the URL to their names in the resource's URI template.
    fn named_here(&self, variables: Variables) -> Variables {
        let name = |upstream: String| {
            let renamed = self.renamed.iter().find(|(_, name)| **name == upstream);
            renamed.map_or(upstream.clone(), |(name, _)| name.clone())
        };
        variables.into_iter().map(|(upstream, value)| (name(upstream), value)).collect()
    }

    /// Adds the constant query parameters to a URL that the service returned, such as a next-page link, unless it has
    /// them already.
    pub(super) fn with_constant_query(&self, mut url: Url) -> Url {
        let own = parameters(url.query().unwrap_or_default());
        let missing: Vec<_> = url::form_urlencoded::parse(self.query.as_bytes())
            .filter(|(name, _)| !own.iter().any(|own| own == name))
            .collect();
        if !missing.is_empty() {
            url.query_pairs_mut().extend_pairs(missing);
        }
        url
    }

    /// Rejects maps, control characters, and empty or dot-segment values in the path.
    fn check(&self, name: &str, value: &VariableValue) -> Result<(), HttpFault> {
        let texts: Vec<&str> = match value {
            VariableValue::Text(text) => vec![text],
            VariableValue::List(list) => list.iter().map(String::as_str).collect(),
            // A map would let the caller choose the names of query parameters.
            VariableValue::Map(_) => return Err(HttpFault::Missing),
        };
        let in_path = self.path_variables.iter().any(|variable| variable == name);
        for text in texts {
            if text.contains(char::is_control) {
                return Err(HttpFault::ControlCharacter(name.to_owned()));
            }
            if in_path && (text.is_empty() || has_dot_segments(text)) {
                return Err(HttpFault::Missing);
            }
        }
        Ok(())
    }

    /// Expands the URL and appends the constant query; `None` if parsing would change its origin or path.
    fn expand_url(&self, variables: &Variables) -> Option<Url> {
        let mut text = self.url.expand(variables).ok()?;
        let path_end = text.find('?').unwrap_or(text.len());
        let path_start = authority_end(&text).ok()?;
        let path = match &text[path_start..path_end] {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        if !self.query.is_empty() {
            text.push(if path_end == text.len() { '?' } else { '&' });
            text.push_str(&self.query);
        }
        let url = Url::parse(&text).ok()?;
        // The parser must not have normalised the URL to one with another path or origin.
        let same = url.path() == path && url.origin().ascii_serialization() == self.origin;
        same.then_some(url)
    }
}

/// The URL of an entry, joined with the base URL if it is relative.
fn joined(base: Option<&str>, url: &str) -> Result<String, String> {
    if url.starts_with("http://") || url.starts_with("https://") {
        return Ok(url.to_owned());
    }
    let Some(base) = base else {
        return Err(format!(
            "its URL `{url}` does not begin with `https://` or `http://`; hint: write the whole URL, or set `base`"
        ));
    };
    if base.contains(['?', '#', '{']) {
        return Err(format!("`base` must be a plain URL, without a query or variables: `{base}`"));
    }
    let base = base.strip_suffix('/').unwrap_or(base);
    // An expression such as `{/id}` or `{?id}` begins with its own separator.
    let joins = ["/", "?", "{/", "{?", "{.", "{;"].iter().any(|start| url.starts_with(start));
    let slash = if url.is_empty() || joins { "" } else { "/" };
    Ok([base, slash, url].concat())
}

/// The byte offset after the authority. Rejects variables and user info in the authority, and `{+…}`, `{#…}` and
/// `#` anywhere in the URL.
fn authority_end(text: &str) -> Result<usize, String> {
    let start = match text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) {
        Some(rest) => text.len() - rest.len(),
        None => return Err(format!("`{text}` is not a URL; hint: begin it with `https://` or `http://`")),
    };
    if ["{+", "{#", "#"].iter().any(|mark| text[start..].contains(mark)) {
        return Err(
            "its URL has `{+…}` or `{#…}`, which do not encode reserved characters, or a fragment (`#…`); hint: \
             write `{name}`"
                .into(),
        );
    }
    let end = text[start..].find(['/', '?', '{']).map_or(text.len(), |length| start + length);
    let rest = &text[end..];
    if rest.starts_with('{') && !rest.starts_with("{/") && !rest.starts_with("{?") {
        return Err(
            "its URL has a variable in the host; hint: write the host, and use variables after it".into()
        );
    }
    if text[start..end].contains(['@', '\\']) {
        return Err("its URL names a user: use `headers` for credentials".into());
    }
    Ok(end)
}

/// The names of the parameters in a query.
fn parameters(query: &str) -> Vec<String> {
    url::form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name.into_owned()).collect()
}

/// Rejects an IP address that the guard does not allow, and `localhost` if loopback addresses are not allowed.
fn check_host(base_url: &Url, guard: &AddressGuard) -> Result<(), String> {
    let host = base_url.host_str().unwrap_or_default();
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // Other names are resolved and checked when the connection is opened.
    let allowed = match literal.parse() {
        Ok(address) => guard.allows(address),
        Err(_) if is_localhost(host) => LOOPBACK.iter().any(|address| guard.allows(*address)),
        Err(_) => true,
    };
    if allowed {
        return Ok(());
    }
    Err(format!(
        "`{host}` is not a public address: set `limits.allow_private`, or name its network in `limits.networks`"
    ))
}

/// The addresses of `localhost`.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    host == "localhost" || host.ends_with(".localhost")
}

/// Whether a path value has a `.` or `..` segment, as written or after up to two rounds of percent-decoding. A value
/// that a third round would still change counts too.
fn has_dot_segments(text: &str) -> bool {
    /// The value as written, and two rounds of decoding.
    const MAX_CHECKED_FORMS: usize = 3;
    let mut text = text.to_owned();
    for _ in 0..MAX_CHECKED_FORMS {
        if text.split(['/', '\\']).any(|piece| matches!(piece, "." | "..")) {
            return true;
        }
        match Uri::decode_segment(&text).map(String::from_utf8) {
            Some(Ok(decoded)) if decoded != text => text = decoded,
            _ => return false,
        }
    }
    true
}

/// The value, and whether it is secret (read from the environment).
fn resolve(value: &TextOrSecret) -> Result<(String, bool), String> {
    match value {
        TextOrSecret::Plain(text) => Ok((text.clone(), false)),
        TextOrSecret::Secret(EnvironmentSecret { env, prefix }) => match std::env::var(env) {
            Ok(value) if !value.is_empty() => Ok((format!("{prefix}{value}"), true)),
            _ => Err(format!("`{env}` is not set in the environment; hint: set it before you start Libris")),
        },
    }
}

/// Merges the headers of the source and of the entry; the entry replaces a header of the same name. `mime` becomes the
/// default `Accept`.
fn headers(all: [&BTreeMap<String, TextOrSecret>; 2], mime: Option<&str>) -> Result<HeaderMap, String> {
    /// Headers that only the HTTP client sets.
    const TRANSPORT_HEADERS: [&str; 9] = [
        "accept-encoding",
        "connection",
        "content-length",
        "host",
        "if-modified-since",
        "if-none-match",
        "range",
        "te",
        "transfer-encoding",
    ];
    let mut headers = HeaderMap::new();
    if let Some(mime) = mime.and_then(|mime| HeaderValue::from_str(mime).ok()) {
        headers.insert(ACCEPT, mime);
    }
    for (name, value) in all.into_iter().flatten() {
        let key: HeaderName = name.parse().map_err(|_| {
            format!("`{name}` is not the name of a header; hint: use letters, digits and `-`")
        })?;
        if TRANSPORT_HEADERS.contains(&key.as_str()) {
            return Err(format!(
                "the header `{name}` cannot be set; hint: remove it, because Libris sets it itself"
            ));
        }
        let (text, secret) = resolve(value)?;
        let mut value = HeaderValue::from_str(&text).map_err(|_| {
            format!(
                "the value of the header `{name}` contains characters that are not allowed in a header; hint: \
                     copy it again, without line breaks"
            )
        })?;
        value.set_sensitive(secret);
        headers.insert(key, value);
    }
    Ok(headers)
}

/// The encoded query parameters of the source and of the entry.
fn query(all: [&BTreeMap<String, TextOrSecret>; 2]) -> Result<String, String> {
    // A parameter of the entry replaces the source's parameter of the same name.
    let merged: BTreeMap<&String, &TextOrSecret> = all.into_iter().flatten().collect();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in merged {
        pairs.push((name.clone(), resolve(value)?.0));
    }
    let template = UriTemplate::parse("{&pairs*}").map_err(|cause| cause.to_string())?;
    let expanded =
        template.expand(&Variables::from_iter([("pairs", pairs)])).map_err(|cause| cause.to_string())?;
    Ok(expanded.strip_prefix('&').unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{AddressGuard, ApiEndpoint, Config, EndpointSpec, Variables};
    use libris_core::uri_template::VariableValue;

    fn endpoint(url: &str) -> Result<ApiEndpoint, String> {
        let spec = EndpointSpec { variables: vec!["a", "b"], ..EndpointSpec::new(url) };
        let config = Config { base: Some("https://api.example/v1/".into()), ..Config::default() };
        ApiEndpoint::new(spec, 0, &config, &AddressGuard { allow_private: false, networks: Vec::new() })
    }

    fn url(pattern: &str, a: impl Into<VariableValue>) -> Option<String> {
        let variables = Variables::from_iter([("a", a)]);
        endpoint(pattern).unwrap().url(variables).ok().map(Into::into)
    }

    #[test]
    fn values_cannot_change_the_structure_of_the_url() {
        assert_eq!(url("p/{a}", "Paris").unwrap(), "https://api.example/v1/p/Paris");
        assert_eq!(url("/p{?a,b}", "é&x=y").unwrap(), "https://api.example/v1/p?a=%C3%A9%26x%3Dy");
        assert_eq!(url("p?q={a}", "a b").unwrap(), "https://api.example/v1/p?q=a%20b");
        assert_eq!(url("{/a*}", vec!["x".to_owned(), "y".to_owned()]).unwrap(), "https://api.example/v1/x/y");
        assert_eq!(url("https://o.example/{a}", "//h").unwrap(), "https://o.example/%2F%2Fh");
        assert_eq!(url("p?q={a}", "..").unwrap(), "https://api.example/v1/p?q=..");
        for climbing in ["..", ".", "", "../x", "x/..", "..\\x", "%2e%2e", "%2e%2e%2fx", "%252e%252e", "a\0b"]
        {
            assert_eq!(url("p/{a}/q", climbing), None, "{climbing}");
        }
        assert_eq!(url("p/{a}.json", ".."), None);
        assert_eq!(url("p/{a}", "...").unwrap(), "https://api.example/v1/p/...");
    }

    #[test]
    fn a_base_and_the_rest_have_a_slash_between_them() {
        for (rest, whole) in [
            ("{a}", "https://api.example/v1/x"),
            ("{a}/p", "https://api.example/v1/x/p"),
            ("/{a}", "https://api.example/v1/x"),
            ("{/a}", "https://api.example/v1/x"),
            ("{?a}", "https://api.example/v1?a=x"),
            ("?q={a}", "https://api.example/v1?q=x"),
            ("", "https://api.example/v1"),
        ] {
            assert_eq!(url(rest, "x").unwrap(), whole, "{rest}");
        }
    }

    #[test]
    fn unsafe_urls_are_refused() {
        for wrong in [
            "https://{a}/x",
            "https://api{a}/x",
            "https://user@api.example/",
            "p/{+a}",
            "p{#a}",
            "p#x",
            "p/../{a}",
            "p/{c}",
            "http://127.0.0.1/{a}",
            "http://[::ffff:127.0.0.1]/",
            "http://2130706433/",
            "http://0x7f.1/",
            "https://api.example:99999/",
        ] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
    }
}
