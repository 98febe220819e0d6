//! A source over a finite set of URIs, which can be there whole or without what is hidden from somebody.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use libris::uri_template::{Specificity, Variables};
use libris::wire::Client;
use libris::{
    CacheScope, Change, Completion, CompletionRequest, Content, Contents, Context, Error, Freshness, Page,
    Prompt, PromptArgument, PromptCompletion, PromptMessage, Prompts, Proof, Resource, Result, Sha256Digest,
    Skill, SkillFile, SkillPage, SkillResources, Source, Template, Templates, Uri, UriTemplate,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::random::{Random, mix};
use crate::rules;

/// What all URIs of the shelf begin with.
pub(crate) const ROOT: &str = "shelf:///";

/// The parts that each file has.
pub(crate) const LINES: [&str; 3] = ["1-1", "1-2", "2-3"];

/// How many entries of a directory a read of it gives.
const CAP: usize = 3;

pub(crate) const BY_PATH: &str = "shelf:///{+path}{?lines}";
pub(crate) const BY_NAME: &str = "shelf:///{dir}/{name}";
pub(crate) const IN_D1: &str = "shelf:///d1/{name}{?lines}";
pub(crate) const IN_D2: &str = "shelf:///d2/{name}";
pub(crate) const OF_LINES: &str = "shelf:///{+path}?lines={lines}";

/// The prompts, each with the template of the resource that it embeds.
pub(crate) const PROMPTS: [(&str, &str); 4] = [
    ("fixed", "shelf:///d0/f0"),
    ("of-lines", "shelf:///p1?lines={lines}"),
    ("in-d1", "shelf:///d1/{name}"),
    ("named", "shelf:///{+path}"),
];

/// The resources that stand for the `SKILL.md` of a skill, each with the directory whose files it has.
pub(crate) const SKILLS: [(&str, &str); 4] = [
    ("shelf:///d0/f0", "shelf:///d0/"),
    ("shelf:///d0/f3", "shelf:///d0/"),
    ("shelf:///d1/f1", "shelf:///d1/"),
    ("shelf:///d2/g001", "shelf:///d2/"),
];

/// All templates.
pub(crate) const TEMPLATES: [&str; 5] = [BY_PATH, BY_NAME, IN_D1, IN_D2, OF_LINES];

pub(crate) fn uri(text: &str) -> Uri {
    Uri::parse(text).unwrap()
}

/// The resources that may stand on a shelf.
pub(crate) struct Universe {
    pub(crate) resources: Vec<Uri>,
    /// The same with the parts of the files among them.
    pub(crate) all: Vec<Uri>,
}

impl Universe {
    fn new(entries: usize) -> Self {
        let mut texts = vec!["me".to_owned(), "index".to_owned(), "d0/".into(), "d1/".into(), "d2/".into()];
        texts.extend((0..8).map(|number| format!("p{number}")));
        texts.extend((0..6).flat_map(|number| [format!("d0/f{number}"), format!("d1/f{number}")]));
        texts.extend((0..entries).map(|number| format!("d2/g{number:03}")));
        let mut resources: Vec<_> = texts.iter().map(|text| uri(&format!("{ROOT}{text}"))).collect();
        resources.sort();
        let parts = resources.iter().filter(|uri| !is_directory(uri)).flat_map(parts);
        let all = resources.iter().cloned().chain(parts).collect();
        Self { resources, all }
    }

    /// One of two hundred resources.
    pub(crate) fn of_two_hundred() -> &'static Self {
        static TWO_HUNDRED: LazyLock<Universe> = LazyLock::new(|| Universe::new(175));
        &TWO_HUNDRED
    }

    /// One of few resources, or one with a directory of more entries than a completion may have values.
    pub(crate) fn of(large: bool) -> &'static Self {
        static SMALL: LazyLock<Universe> = LazyLock::new(|| Universe::new(5));
        static LARGE: LazyLock<Universe> = LazyLock::new(|| Universe::new(130));
        if large { &LARGE } else { &SMALL }
    }
}

fn is_directory(uri: &Uri) -> bool {
    uri.as_str().ends_with('/')
}

fn parts(whole: &Uri) -> impl Iterator<Item = Uri> {
    LINES.into_iter().map(move |lines| uri(&format!("{whole}?lines={lines}")))
}

/// Which URIs somebody may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predicate {
    Everything,
    Nothing,
    /// About so many of a hundred.
    Some {
        seed: u64,
        percent: u64,
    },
    /// What the random rules of this seed allow.
    Rules(u64),
}

impl Predicate {
    pub(crate) fn random(random: &mut Random) -> Self {
        match random.below(10) {
            0 => Self::Everything,
            1 => Self::Nothing,
            2..6 => Self::Rules(random.next()),
            _ => Self::Some { seed: random.next(), percent: *random.pick(&[20, 50, 80, 95]) },
        }
    }

    /// Whether this URI by itself may be seen.
    pub(crate) fn shows(self, uri: &Uri) -> bool {
        match self {
            Self::Everything => true,
            Self::Nothing => false,
            Self::Rules(seed) => rules::shows(&rules::simple(seed), uri),
            Self::Some { seed, percent } => {
                let hash = uri
                    .as_str()
                    .bytes()
                    .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
                mix(hash) % 100 < percent
            }
        }
    }
}

/// What of a universe somebody may see: what a predicate shows, and of parts those whose whole it shows too.
pub(crate) struct Seen {
    uris: BTreeSet<Uri>,
}

impl Seen {
    pub(crate) fn new(universe: &Universe, predicate: Predicate) -> Self {
        let sees = |uri: &&Uri| predicate.shows(uri) && predicate.shows(&uri.without_query());
        Self { uris: universe.all.iter().filter(sees).cloned().collect() }
    }

    /// The resources of a universe about which this is true, with their parts.
    pub(crate) fn of(universe: &Universe, is_seen: impl Fn(&Uri) -> bool) -> Self {
        Self { uris: universe.all.iter().filter(|uri| is_seen(uri)).cloned().collect() }
    }

    pub(crate) fn has(&self, uri: &Uri) -> bool {
        self.uris.contains(uri)
    }

    /// Whether something begins with `prefix`.
    pub(crate) fn has_below(&self, prefix: &str) -> bool {
        let mut rest =
            self.uris.range::<str, _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        rest.next().is_some_and(|uri| uri.as_str().starts_with(prefix))
    }
}

/// The resources that are there, with a number that tells their contents; the same for all shelves of a case.
#[derive(Default)]
pub(crate) struct Stock {
    items: Mutex<BTreeMap<Uri, u64>>,
    /// Generation counter: bumped when the stock, or what a shelf shows of it, changes.
    generation: AtomicU64,
}

impl Stock {
    /// Most of a universe.
    pub(crate) fn random(universe: &Universe, random: &mut Random) -> Arc<Self> {
        let items =
            universe.resources.iter().filter(|_| random.chance(90)).map(|uri| (uri.clone(), 0)).collect();
        Arc::new(Self { items: Mutex::new(items), generation: AtomicU64::new(0) })
    }

    /// All of a universe.
    pub(crate) fn of(universe: &Universe) -> Arc<Self> {
        let items = universe.resources.iter().map(|uri| (uri.clone(), 0)).collect();
        Arc::new(Self { items: Mutex::new(items), generation: AtomicU64::new(0) })
    }

    fn bump(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds, removes or rewrites a resource.
    pub(crate) fn change(&self, uri: &Uri, random: &mut Random) {
        let mut items = self.items.lock().unwrap();
        match items.contains_key(uri) && random.chance(50) {
            true => drop(items.remove(uri)),
            false => *items.entry(uri.clone()).or_default() += 1,
        }
        drop(items);
        self.bump();
    }
}

/// A source that shows a stock, whole or without what is hidden from somebody.
pub(crate) struct Shelf {
    stock: Arc<Stock>,
    seen: RwLock<Arc<Seen>>,
    watchers: Mutex<Vec<UnboundedSender<Change>>>,
    followed: Mutex<BTreeSet<Uri>>,
}

impl Shelf {
    pub(crate) fn new(stock: &Arc<Stock>, seen: Arc<Seen>) -> Arc<Self> {
        Arc::new(Self {
            stock: stock.clone(),
            seen: RwLock::new(seen),
            watchers: Mutex::default(),
            followed: Mutex::default(),
        })
    }

    /// From now on it has what is in `seen` and nothing else.
    pub(crate) fn show(&self, seen: Arc<Seen>) {
        *self.seen.write().unwrap() = seen;
        self.stock.bump();
    }

    /// Reports a change.
    pub(crate) fn report(&self, change: &Change) {
        self.watchers.lock().unwrap().retain(|watcher| watcher.send(change.clone()).is_ok());
    }

    /// The subjects that it was told to follow.
    pub(crate) fn followed(&self) -> BTreeSet<Uri> {
        self.followed.lock().unwrap().clone()
    }

    fn seen(&self) -> Arc<Seen> {
        self.seen.read().unwrap().clone()
    }

    /// The resources that it has, in URI order.
    fn there(&self) -> Vec<Uri> {
        let seen = self.seen();
        self.stock.items.lock().unwrap().keys().filter(|uri| seen.has(uri)).cloned().collect()
    }

    /// Whether it has this resource, or this part of one.
    pub(crate) fn has(&self, uri: &Uri) -> bool {
        self.seen().has(uri) && self.stock.items.lock().unwrap().contains_key(&uri.without_query())
    }

    fn freshness(&self) -> Freshness {
        let (stock, then) = (self.stock.clone(), self.stock.generation.load(Ordering::SeqCst));
        let proof = Proof::new(move || stock.generation.load(Ordering::SeqCst) == then);
        Freshness::proven(proof).with_ttl(Duration::from_secs(5)).with_scope(CacheScope::Public)
    }

    /// A skill with the files in a directory, if its `SKILL.md` is there.
    fn skill_at(&self, skill_uri: &Uri, directory: &str) -> Option<Skill> {
        if !self.has(skill_uri) {
            return None;
        }
        let file =
            |uri: Uri| SkillFile { size: uri.as_str().len() as u64, digest: Sha256Digest([7; 32]), uri };
        let files = self.below(directory).into_iter().map(file).collect();
        let frontmatter = [("name".to_owned(), skill_uri.as_str().into())].into_iter().collect();
        Some(Skill { uri: skill_uri.clone(), frontmatter, resources: SkillResources::Files(files) })
    }

    /// A prompt that embeds this resource, unless the shelf cannot have it.
    fn prompt_named(&self, name: &str, place: &str) -> Option<Prompt> {
        let template = UriTemplate::parse(place).unwrap();
        let mut prompt = Prompt::new(name);
        prompt.arguments = template.variables().map(PromptArgument::required).collect();
        let can_have = match prompt.arguments.is_empty() {
            true => self.seen().has(&uri(place)),
            false => self.seen().has_below(place.split('{').next().unwrap()),
        };
        prompt.resources = vec![template];
        can_have.then_some(prompt)
    }

    /// What stands directly below a directory.
    fn below(&self, directory: &str) -> Vec<Uri> {
        let is_below = |uri: &Uri| uri.as_str().strip_prefix(directory).is_some_and(|rest| !rest.is_empty());
        self.there().into_iter().filter(is_below).collect()
    }

    /// The entries of a directory that the caller may see, as far as they fit, and how many do not.
    fn directory(&self, uri: &Uri, context: &Context) -> Vec<Content> {
        let entries: Vec<_> =
            self.below(uri.as_str()).into_iter().filter(|entry| context.sees(entry)).collect();
        let mut parts: Vec<_> = entries
            .iter()
            .take(CAP)
            .map(|entry| Content::text(entry.clone(), "text/plain", "entry"))
            .collect();
        let more = entries.len().saturating_sub(CAP);
        if more > 0 || parts.is_empty() {
            parts.push(Content::text(uri.clone(), "text/plain", format!("[{more} more]")));
        }
        parts
    }

    /// The values for a variable, whether or not the variables before it are known. Where all others are, those that
    /// lead to something.
    fn values(&self, asked: &CompletionRequest<'_>) -> Vec<String> {
        let template = asked.template;
        let is_known = |name: &str| {
            name == asked.variable || asked.known.contains_key(name) || template.is_optional(name)
        };
        let mut values = self.candidates(asked);
        if template.variables().all(is_known) {
            values.retain(|value| {
                let mut variables: Variables = asked.known.iter().collect();
                variables.insert(asked.variable, value);
                Uri::parse(&template.expand(&variables).unwrap()).is_ok_and(|uri| self.has(&uri))
            });
        }
        values
    }

    fn candidates(&self, asked: &CompletionRequest<'_>) -> Vec<String> {
        let seen = self.seen();
        let known = |name: &str| asked.known.get(name).map(String::as_str);
        let path = |uri: &Uri| uri.as_str()[ROOT.len()..].to_owned();
        let name = |uri: &Uri| path(uri).rsplit('/').next().unwrap_or_default().to_owned();
        let lines = |whole: Option<String>| match whole.map(|whole| Uri::parse(&whole)) {
            None => LINES.map(str::to_owned).to_vec(),
            Some(Err(_)) => Vec::new(),
            Some(Ok(whole)) => {
                let lines = LINES.into_iter().zip(parts(&whole));
                lines.filter(|(_, part)| self.has(part)).map(|(lines, _)| lines.to_owned()).collect()
            }
        };
        let named = |directory: &str| self.below(directory).iter().map(name).collect::<Vec<_>>();
        let rooted = |path: &str| format!("{ROOT}{path}");
        match (asked.template.as_str(), asked.variable) {
            (BY_PATH, "path") => self.there().iter().map(path).collect(),
            (BY_PATH | OF_LINES, "lines") => lines(known("path").map(rooted)),
            (OF_LINES, "path") => {
                let has_parts = |uri: &&Uri| !is_directory(uri) && parts(uri).any(|part| seen.has(&part));
                self.there().iter().filter(has_parts).map(path).collect()
            }
            (BY_NAME, "dir") => {
                let directories = ["d0", "d1", "d2"].into_iter();
                directories
                    .filter(|name| seen.has_below(&rooted(&format!("{name}/"))))
                    .map(str::to_owned)
                    .collect()
            }
            (BY_NAME, "name") => match known("dir") {
                Some(directory) => named(&rooted(&format!("{directory}/"))),
                None => {
                    ["d0/", "d1/", "d2/"].iter().flat_map(|directory| named(&rooted(directory))).collect()
                }
            },
            (IN_D1, "name") => named(&rooted("d1/")),
            (IN_D1, "lines") => lines(known("name").map(|name| rooted(&format!("d1/{name}")))),
            (IN_D2, "name") => named(&rooted("d2/")),
            _ => Vec::new(),
        }
    }
}

#[async_trait]
impl Source for Shelf {
    fn covers(&self, uri: &Uri) -> Option<Specificity> {
        (self.may_appear(uri) || self.has(uri)).then_some(Specificity::EXACT)
    }

    /// Anything may come to be in a directory, as in a folder; all else is fixed.
    fn may_appear(&self, uri: &Uri) -> bool {
        let path = uri.as_str().strip_prefix(ROOT).and_then(|path| path.split_once('/'));
        path.is_some_and(|(directory, name)| ["d0", "d1", "d2"].contains(&directory) && !name.is_empty())
    }

    async fn list(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
        let freshness = self.freshness();
        Ok(Page { freshness, ..page(self.there(), after, limit) })
    }

    async fn children(&self, uri: &Uri, after: Option<&Uri>, limit: usize, _: &Context) -> Result<Page> {
        match (self.has(uri), is_directory(uri)) {
            (false, _) => Err(Error::NotFound(uri.clone())),
            (true, false) => Err(Error::NotDirectory(uri.clone())),
            (true, true) => Ok(page(self.below(uri.as_str()), after, limit)),
        }
    }

    async fn read(&self, uri: &Uri, context: &Context) -> Result<Contents> {
        let freshness = self.freshness();
        if !self.has(uri) {
            return Err(Error::NotFound(uri.clone()));
        }
        let text = |text: String| vec![Content::text(uri.clone(), "text/plain", text)];
        let parts = match uri.path() {
            // Every part of `me` depends on who asks.
            "/me" => {
                text(format!("{uri} of {}", context.identity().map_or("nobody", |identity| identity.name())))
            }
            // Names others without asking whether the caller may see them: that is left to the view.
            "/index" if uri.query().is_none() => {
                let others = self.there().into_iter().filter(|other| other.path().starts_with("/p"));
                others.map(|other| Content::text(other, "text/plain", "listed")).collect()
            }
            _ if is_directory(uri) => self.directory(uri, context),
            _ => {
                let number = self.stock.items.lock().unwrap().get(&uri.without_query()).copied();
                text(format!("{uri}, version {number:?}"))
            }
        };
        Ok(Contents { parts, freshness })
    }

    async fn templates(&self, _: &Context) -> Result<Templates> {
        let (freshness, seen) = (self.freshness(), self.seen());
        let is_offered = |text: &&str| seen.has_below(text.split('{').next().unwrap());
        let template = |text| Template::new(UriTemplate::parse(text).unwrap(), text);
        let templates = TEMPLATES.into_iter().filter(is_offered).map(template).collect();
        Ok(Templates { templates, freshness, ..Templates::default() })
    }

    async fn complete(&self, asked: CompletionRequest<'_>, _: &Context) -> Result<Completion> {
        let completion = Completion::of(self.values(&asked), asked.typed, asked.limit);
        // Not every source counts.
        let total = completion.total.filter(|_| asked.template.as_str() != BY_PATH);
        Ok(Completion { total, ..completion })
    }

    fn has_directories(&self) -> bool {
        true
    }

    async fn skills(&self, after: Option<&Uri>, limit: usize, _: &Context) -> Result<SkillPage> {
        let all =
            SKILLS.iter().filter_map(|(skill_uri, directory)| self.skill_at(&uri(skill_uri), directory));
        let mut skills: Vec<_> = all.filter(|skill| after.is_none_or(|after| skill.uri > *after)).collect();
        let more = skills.len() > limit;
        skills.truncate(limit);
        Ok(SkillPage { skills, more, freshness: self.freshness(), ..SkillPage::default() })
    }

    async fn skill(&self, uri: &Uri, _: &Context) -> Result<(Skill, Freshness)> {
        let found = SKILLS.iter().find(|(skill_uri, _)| *skill_uri == uri.as_str());
        let skill = found.and_then(|(_, directory)| self.skill_at(uri, directory));
        Ok((skill.ok_or_else(|| Error::NotFound(uri.clone()))?, self.freshness()))
    }

    async fn prompts(&self, _: &Context) -> Result<Prompts> {
        let prompts: Vec<_> =
            PROMPTS.iter().filter_map(|(name, place)| self.prompt_named(name, place)).collect();
        Ok(Prompts { freshness: self.freshness(), ..Prompts::from(prompts) })
    }

    async fn prompt(
        &self,
        name: &str,
        arguments: &BTreeMap<String, String>,
        _: &Context,
    ) -> Result<Option<Vec<PromptMessage>>> {
        let Some((_, place)) = PROMPTS.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        let place = UriTemplate::parse(place).unwrap();
        let embedded = Uri::parse(&place.expand(&arguments.iter().collect()).unwrap())?;
        Ok(Some(vec![PromptMessage::user("Read this:"), PromptMessage::user(embedded)]))
    }

    async fn complete_prompt(&self, asked: PromptCompletion<'_>, _: &Context) -> Result<Option<Completion>> {
        let is_own = (asked.prompt, asked.argument) == ("of-lines", "lines");
        // Those of a resource that is hidden too: that is left to the view.
        let has = |lines: &&str| self.seen().has(&uri(&format!("shelf:///p1?lines={lines}")));
        let values: Vec<_> = LINES.into_iter().filter(has).collect();
        Ok(is_own.then(|| Completion::of(values, asked.typed, asked.limit)))
    }

    fn subject(&self, uri: &Uri) -> Uri {
        uri.without_query()
    }

    fn follow(&self, subject: &Uri, _: Client) {
        self.followed.lock().unwrap().insert(subject.clone());
    }

    fn unfollow(&self, subject: &Uri) {
        self.followed.lock().unwrap().remove(subject);
    }

    async fn watch(&self) -> Result<Option<BoxStream<'static, Change>>> {
        let (sender, receiver) = unbounded_channel();
        self.watchers.lock().unwrap().push(sender);
        let changes = stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|change| (change, receiver))
        });
        Ok(Some(changes.boxed()))
    }
}

fn page(mut uris: Vec<Uri>, after: Option<&Uri>, limit: usize) -> Page {
    uris.retain(|uri| after.is_none_or(|after| uri > after));
    let more = uris.len() > limit;
    let resources = uris.into_iter().take(limit).map(|uri| {
        let name = uri.path().to_owned();
        Resource::new(uri, name)
    });
    Page { resources: resources.collect(), more, ..Page::default() }
}
