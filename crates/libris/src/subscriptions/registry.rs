//! The registry of listeners and subscriptions. While its lock is held, no method of a source is called except
//! [`Source::aliases`](libris_core::Source::aliases), to check rights.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use libris_core::Uri;
use libris_wire::Notification;

use super::budget::{BudgetOwner, OverBudget, SubscriptionBudget, SubscriptionCost};
use super::notification_set::NotificationSet;
use super::{SubscriptionConfig, should_shrink};
use crate::library_index;
use crate::rights::Operation;
use crate::view::View;

/// All listeners and their subscriptions.
pub(super) struct Registry {
    /// The number of the last listener.
    last: u64,
    members: HashMap<u64, RegisteredListener>,
    subjects: HashMap<Uri, HashSet<Subscription>>,
    /// The subjects that have changed in the current debounce window; each has subscribers.
    changed: HashSet<Uri>,
    /// The listeners that receive `list_changed`.
    list_followers: HashSet<u64>,
    /// The listeners that receive `prompts/list_changed`.
    prompt_followers: HashSet<u64>,
    /// The listeners that receive `tools/list_changed`.
    tool_followers: HashSet<u64>,
    classes: ListenersByClass,
    budget: SubscriptionBudget,
}

/// The rights classes of the listeners: a view of each class and the number of its listeners.
type ListenersByClass = HashMap<u64, (Arc<View>, usize)>;

fn leave_class(classes: &mut ListenersByClass, class: u64) {
    if let Some((_, count)) = classes.get_mut(&class) {
        *count -= 1;
        if *count == 0 {
            classes.remove(&class);
        }
    }
}

/// A listener.
struct RegisteredListener {
    client: BudgetOwner,
    view: Arc<View>,
    /// The rights class.
    class: u64,
    /// Whether the list may have changed before the listener followed it.
    missed_list: bool,
    notifications: Arc<NotificationSet>,
    /// The subject of each subscription, by the URI as the client wrote it.
    subscriptions: HashMap<Arc<str>, Uri>,
    /// The subscriptions to hidden resources. They are accepted like subscriptions to missing resources, and no source
    /// follows them.
    hidden: HashSet<Arc<str>>,
    /// The cost that is reserved for subscriptions that the listener is about to add.
    reserved: SubscriptionCost,
}

/// The lists that a listener follows: it is notified when they change.
#[derive(Clone, Copy)]
struct FollowedLists {
    resources: bool,
    prompts: bool,
    tools: bool,
}

impl RegisteredListener {
    /// Whether the rights of the listener allow a subscription to this URI.
    fn may_subscribe(&self, name: &str) -> bool {
        Uri::parse(name).is_ok_and(|uri| self.view.snapshot().allows(Operation::Subscribe, &uri))
    }

    /// Evaluates the rights class of the listener again, and counts the listener in it. If the class changed, queues
    /// `list_changed` and updates of resources that became visible, and returns the subjects of the subscriptions.
    fn update_class(&mut self, classes: &mut ListenersByClass, follows: FollowedLists) -> Vec<Uri> {
        let class = self.view.snapshot().rights().class();
        classes.entry(class).or_insert_with(|| (self.view.clone(), 0)).1 += 1;
        if std::mem::replace(&mut self.class, class) == class {
            return Vec::new();
        }
        self.notify_list(follows.resources);
        if follows.prompts {
            self.notifications.put(Notification::PromptsChanged);
        }
        if follows.tools {
            self.notifications.put(Notification::ToolsChanged);
        }
        let hidden = self.subscriptions.keys().filter(|name| !self.may_subscribe(name));
        let hidden: HashSet<_> = hidden.cloned().collect();
        for name in std::mem::replace(&mut self.hidden, hidden) {
            if !self.hidden.contains(&name) {
                self.notifications.put(Notification::Updated(name));
            }
        }
        self.subscriptions.values().cloned().collect()
    }

    /// Queues `list_changed` if the listener follows the list; otherwise records that it missed one.
    fn notify_list(&mut self, follows: bool) {
        match follows {
            true => self.notifications.put(Notification::ListChanged),
            false => self.missed_list = true,
        }
    }
}

/// A subscription to one subject.
#[derive(PartialEq, Eq, Hash)]
struct Subscription {
    listener: u64,
    /// The URI as the client wrote it.
    name: Arc<str>,
}

/// Why a subscription was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionRefusal {
    /// The listener has reached this number of subscriptions.
    Subscriptions(usize),
    /// A budget is used up.
    Budget(OverBudget),
}

impl Registry {
    pub(super) fn new(config: &SubscriptionConfig) -> Self {
        Self {
            last: 0,
            members: HashMap::new(),
            subjects: HashMap::new(),
            changed: HashSet::new(),
            list_followers: HashSet::new(),
            prompt_followers: HashSet::new(),
            tool_followers: HashSet::new(),
            classes: HashMap::new(),
            budget: SubscriptionBudget::new(config),
        }
    }

    /// Adds a listener of a client.
    pub(super) fn join(
        &mut self,
        view: Arc<View>,
        client: libris_core::Client,
    ) -> (u64, Arc<NotificationSet>) {
        self.last += 1;
        let listener = self.last;
        let notifications = Arc::<NotificationSet>::default();
        let client = BudgetOwner::new(client, listener);
        let class = view.snapshot().rights().class();
        self.classes.entry(class).or_insert_with(|| (view.clone(), 0)).1 += 1;
        let member = RegisteredListener {
            client,
            class,
            view,
            missed_list: false,
            notifications: notifications.clone(),
            subscriptions: HashMap::new(),
            hidden: HashSet::new(),
            reserved: SubscriptionCost::default(),
        };
        self.members.insert(listener, member);
        (listener, notifications)
    }

    /// Ends at most `batch` subscriptions of a listener and returns those subjects that have no subscriber left; breaks
    /// when the listener is removed.
    pub(super) fn leave(&mut self, listener: u64, batch: usize) -> ControlFlow<Vec<Uri>, Vec<Uri>> {
        let Some(member) = self.members.get_mut(&listener) else { return ControlFlow::Break(Vec::new()) };
        let client = member.client;
        let names: Vec<_> = member.subscriptions.keys().take(batch).cloned().collect();
        let ended: Vec<_> = names.iter().filter_map(|name| member.subscriptions.remove_entry(name)).collect();
        let is_last = member.subscriptions.is_empty();
        let ended = ended.into_iter();
        let deserted =
            ended.filter_map(|(name, subject)| self.end(listener, client, name, subject)).collect();
        if !is_last {
            return ControlFlow::Continue(deserted);
        }
        self.list_followers.remove(&listener);
        self.prompt_followers.remove(&listener);
        self.tool_followers.remove(&listener);
        if let Some(member) = self.members.remove(&listener) {
            self.budget.release(client, member.reserved);
            leave_class(&mut self.classes, member.class);
        }
        ControlFlow::Break(deserted)
    }

    pub(super) fn listeners(&self) -> usize {
        self.members.len()
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.budget.subscriptions()
    }

    pub(super) fn bytes(&self) -> usize {
        self.budget.bytes()
    }

    /// Records that the list may have changed before the watch started.
    pub(super) fn mark_list_missed(&mut self, listener: u64) {
        if let Some(member) = self.members.get_mut(&listener) {
            member.missed_list = true;
        }
    }

    /// Sends `list_changed` to this listener from now on. Returns whether the listener has missed one since it joined.
    pub(super) fn follow_list(&mut self, listener: u64) -> bool {
        let first = self.list_followers.insert(listener);
        let member = self.members.get_mut(&listener);
        first && member.is_some_and(|member| std::mem::take(&mut member.missed_list))
    }

    /// Sends `prompts/list_changed` to this listener from now on.
    pub(super) fn follow_prompts(&mut self, listener: u64) {
        self.prompt_followers.insert(listener);
    }

    /// Queues `prompts/list_changed` for the listeners that follow the prompts.
    pub(super) fn notify_prompts(&self) {
        for member in self.prompt_followers.iter().filter_map(|listener| self.members.get(listener)) {
            member.notifications.put(Notification::PromptsChanged);
        }
    }

    /// Sends `tools/list_changed` to this listener from now on.
    pub(super) fn follow_tools(&mut self, listener: u64) {
        self.tool_followers.insert(listener);
    }

    /// Queues `tools/list_changed` for the listeners that follow the tools.
    pub(super) fn notify_tools(&self) {
        for member in self.tool_followers.iter().filter_map(|listener| self.members.get(listener)) {
            member.notifications.put(Notification::ToolsChanged);
        }
    }

    /// Adds to `cost` the minimum cost of subscriptions to these URIs. Fails if the sum exceeds the budget of the
    /// listener's client or of all clients.
    pub(super) fn add_least_cost(
        &self,
        listener: u64,
        names: &[&str],
        cost: &mut SubscriptionCost,
    ) -> Result<(), SubscriptionRefusal> {
        let Some(member) = self.members.get(&listener) else { return Ok(()) };
        names.iter().for_each(|name| self.budget.add_least_cost(member.client, name, cost));
        self.budget.check(member.client, *cost).map_err(SubscriptionRefusal::Budget)
    }

    /// Reserves memory for subscriptions that a listener is about to add. Replaces its earlier reservation.
    pub(super) fn reserve(
        &mut self,
        listener: u64,
        cost: SubscriptionCost,
    ) -> Result<(), SubscriptionRefusal> {
        let Some(member) = self.members.get_mut(&listener) else { return Ok(()) };
        self.budget.release(member.client, std::mem::take(&mut member.reserved));
        self.budget.reserve(member.client, cost).map_err(SubscriptionRefusal::Budget)?;
        member.reserved = cost;
        Ok(())
    }

    /// Adds a subscription, at most `most` per listener. Returns its subject, or `None` if the listener has this
    /// subscription already. A refusal changes nothing.
    pub(super) fn subscribe(
        &mut self,
        listener: u64,
        name: &str,
        subject: Uri,
        most: usize,
    ) -> Result<Option<Uri>, SubscriptionRefusal> {
        let Some(member) = self.members.get_mut(&listener) else { return Ok(None) };
        if member.subscriptions.contains_key(name) {
            return Ok(None);
        }
        if member.subscriptions.len() >= most {
            return Err(SubscriptionRefusal::Subscriptions(most));
        }
        let subject = self.subjects.get_key_value(&subject).map_or(subject, |(shared, _)| shared.clone());
        let subject_text = Arc::<str>::from(subject.clone());
        let name = match self.budget.interned(name) {
            Some(shared) => shared,
            None if *subject_text == *name => subject_text.clone(),
            None => name.into(),
        };
        let cost =
            self.budget.charge(member.client, &name, &subject_text).map_err(SubscriptionRefusal::Budget)?;
        self.budget.release(member.client, member.reserved.take(cost));
        // Checked under the lock: if the rights change afterwards, `notify_changed_rights` checks again.
        if !member.may_subscribe(&name) {
            member.hidden.insert(name.clone());
        }
        member.subscriptions.insert(name.clone(), subject.clone());
        self.subjects.entry(subject.clone()).or_default().insert(Subscription { listener, name });
        Ok(Some(subject))
    }

    /// Ends a subscription; returns its subject if the subject has no subscriber left.
    pub(super) fn unsubscribe(&mut self, listener: u64, name: &str) -> Option<Uri> {
        let member = self.members.get_mut(&listener)?;
        let (name, subject) = member.subscriptions.remove_entry(name)?;
        if should_shrink(member.subscriptions.len(), member.subscriptions.capacity()) {
            member.subscriptions.shrink_to(member.subscriptions.len() * 2);
        }
        member.hidden.remove(&name);
        member.notifications.forget(&name);
        let client = member.client;
        self.end(listener, client, name, subject)
    }

    /// Removes a subscription from the budget and from its subject; returns the subject if it has no subscriber left.
    fn end(&mut self, listener: u64, client: BudgetOwner, name: Arc<str>, subject: Uri) -> Option<Uri> {
        self.budget.refund(client, &name, subject.as_str());
        let subscribers = self.subjects.get_mut(&subject)?;
        subscribers.remove(&Subscription { listener, name });
        if should_shrink(subscribers.len(), subscribers.capacity()) {
            subscribers.shrink_to(subscribers.len() * 2);
        }
        if !subscribers.is_empty() {
            return None;
        }
        self.subjects.remove(&subject);
        self.changed.remove(&subject);
        if should_shrink(self.subjects.len(), self.subjects.capacity()) {
            self.subjects.shrink_to(self.subjects.len() * 2);
        }
        Some(subject)
    }

    /// The client on whose behalf the source follows this subject; `None` if no subscriber has the right to subscribe.
    /// A source divides its polling time between clients, so this returns the client that uses the least of its budget
    /// among the first few subscribers. Thus a client with many subscriptions cannot slow down the polling of a subject
    /// by subscribing to it too.
    pub(super) fn client_following(&self, subject: &Uri) -> Option<libris_core::Client> {
        const MAX_COMPARED_CLIENTS: usize = 16;
        let subscribers = self.subjects.get(subject)?.iter();
        let clients = subscribers.filter_map(|Subscription { listener, name }| {
            self.members
                .get(listener)
                .filter(|member| !member.hidden.contains(name))
                .map(|member| member.client)
        });
        let client = clients.take(MAX_COMPARED_CLIENTS).min_by_key(|client| self.budget.bytes_of(*client))?;
        Some(client.known())
    }

    /// All subjects with subscribers.
    pub(super) fn subjects(&self) -> Vec<Uri> {
        self.subjects.keys().cloned().collect()
    }

    /// Records a change of a subject. Returns whether the subject has subscribers.
    pub(super) fn change(&mut self, subject: &Uri) -> bool {
        let Some((shared, _)) = self.subjects.get_key_value(subject) else { return false };
        self.changed.insert(shared.clone());
        true
    }

    /// Records a change of every subject.
    pub(super) fn change_all(&mut self) {
        self.changed.extend(self.subjects.keys().cloned());
    }

    /// Ends the debounce window; returns the subjects that changed in it.
    pub(super) fn take_changed(&mut self) -> Vec<Uri> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Adds notifications of these subjects to the sets of their subscribers.
    pub(super) fn notify_changed(&self, subjects: &[Uri]) {
        for subject in subjects {
            for Subscription { listener, name } in self.subjects.get(subject).into_iter().flatten() {
                if let Some(member) = self.members.get(listener) {
                    member.notifications.put(Notification::Updated(name.clone()));
                }
            }
        }
    }

    /// A view of each rights class among the listeners.
    pub(super) fn classes(&self) -> Vec<(u64, Arc<View>)> {
        self.classes.iter().map(|(class, (view, _))| (*class, view.clone())).collect()
    }

    /// Queues `list_changed` for the listeners of these rights classes; `None` for all listeners.
    pub(super) fn notify_list(&mut self, classes: Option<&HashSet<u64>>) {
        for (listener, member) in &mut self.members {
            if classes.is_none_or(|classes| classes.contains(&member.class)) {
                member.notify_list(self.list_followers.contains(listener));
            }
        }
        // `libris://index` changes with the list. Only listeners whose list has changed are notified, so that nobody
        // learns of changes of hidden resources.
        let index = library_index::uri();
        for Subscription { listener, name } in self.subjects.get(&index).into_iter().flatten() {
            if let Some(member) = self.members.get(listener)
                && classes.is_none_or(|classes| classes.contains(&member.class))
                && !member.hidden.contains(name)
            {
                member.notifications.put(Notification::Updated(name.clone()));
            }
        }
    }

    /// Queues `list_changed` for listeners whose rights class changed, and updates of resources that became visible.
    /// Returns the subjects of their subscriptions.
    pub(super) fn notify_changed_rights(&mut self) -> HashSet<Uri> {
        let mut subjects = HashSet::new();
        self.classes.clear();
        for (listener, member) in &mut self.members {
            let follows = FollowedLists {
                resources: self.list_followers.contains(listener),
                prompts: self.prompt_followers.contains(listener),
                tools: self.tool_followers.contains(listener),
            };
            subjects.extend(member.update_class(&mut self.classes, follows));
        }
        subjects
    }

    /// Replaces the view of a listener whose identity was renewed. Returns the subjects of its subscriptions if its
    /// rights class changed.
    pub(super) fn renew(&mut self, listener: u64, view: Arc<View>) -> Vec<Uri> {
        let Some(member) = self.members.get_mut(&listener) else { return Vec::new() };
        leave_class(&mut self.classes, member.class);
        member.view = view;
        let follows = FollowedLists {
            resources: self.list_followers.contains(&listener),
            prompts: self.prompt_followers.contains(&listener),
            tools: self.tool_followers.contains(&listener),
        };
        member.update_class(&mut self.classes, follows)
    }

    /// Returns an undelivered notification to the listener's set, if its subscription still exists.
    pub(super) fn requeue(&self, listener: u64, notification: Notification) {
        let Some(member) = self.members.get(&listener) else { return };
        match notification {
            notification @ (Notification::ListChanged
            | Notification::PromptsChanged
            | Notification::ToolsChanged) => {
                member.notifications.put(notification);
            }
            // Use the copy of the text that the current subscription holds.
            Notification::Updated(name) => {
                if let Some((name, _)) = member.subscriptions.get_key_value(&name) {
                    member.notifications.put(Notification::Updated(name.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
