//! What an attack does to a server and to bystanders: measured before, during and after it.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Result, anyhow};

use super::bystander::{self, Clock, Experience, Experiences, Phase};
use super::client::{ATTACKER, ELSEWHERE};
use super::priority;
use super::site::Target;
use crate::machine::field;
use crate::process;

/// How long there is no attack, before it and after it.
const CALM: Duration = Duration::from_secs(5);

/// The time between two looks at the server's process.
const LOOK: Duration = Duration::from_millis(25);

/// Looks at a server and has bystanders ask it, from the start of an attack to its end.
pub(super) struct Watch {
    clock: Arc<Clock>,
    bystanders: Vec<JoinHandle<Experiences>>,
    sampler: Option<JoinHandle<Usages>>,
}

/// What a process takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    /// Resident memory in bytes.
    pub(super) memory: u64,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

/// What a process took in each phase: at the end of the first and the last, and at most in the second.
#[derive(Default)]
pub(super) struct Usages {
    pub(super) phases: [Usage; 3],
    /// The peak of the resident memory as the kernel counts it, in bytes.
    pub(super) peak: u64,
    /// Whether the process ended before it was told to.
    pub(super) ended: bool,
}

/// What was measured around one attack.
pub(super) struct Measured {
    /// Of the bystander with an address of its own.
    pub(super) elsewhere: Experiences,
    /// Of the one with the attacker's address.
    pub(super) beside: Experiences,
    /// Of one that asks a server which is not attacked, on the same machine.
    pub(super) control: Experiences,
    pub(super) usages: Usages,
}

impl Measured {
    /// How many times longer the p99 of the bystander elsewhere is during the attack than that of a server which is left
    /// alone: the same one before the attack, or the control during it, whichever is longer. Attackers take processor
    /// time from every server on the machine, which says nothing about the one that they attack.
    pub(super) fn slowdown(&self) -> f64 {
        let p99 = |experiences: &Experiences, phase: Phase| experiences[phase as usize].percentile(0.99);
        let alone = p99(&self.elsewhere, Phase::Before).max(p99(&self.control, Phase::During));
        p99(&self.elsewhere, Phase::During) / alone
    }

    /// How many requests of the bystander elsewhere failed.
    pub(super) fn errors(&self) -> usize {
        self.elsewhere.iter().map(|experience: &Experience| experience.errors).sum()
    }
}

impl Watch {
    /// Measures a server that is left alone for a while. What happens after this counts as the attack.
    pub(super) async fn begin(target: &Target) -> Result<Self> {
        let clock = Arc::<Clock>::default();
        let mut watch = Self { clock: clock.clone(), bystanders: Vec::new(), sampler: None };
        let (target_address, control) = (target.address(), target.control());
        for (server, from) in [(target_address, ELSEWHERE), (target_address, ATTACKER), (control, ELSEWHERE)]
        {
            watch.bystanders.push(bystander::start(server, from, clock.clone())?);
        }
        let id = target.id();
        watch.sampler = Some(priority::usual(move || std::thread::spawn(move || sample(id, &clock)))?);
        tokio::time::sleep(CALM).await;
        watch.clock.set(Phase::During);
        Ok(watch)
    }

    /// Measures the server after the attack for a while.
    pub(super) async fn end(mut self) -> Result<Measured> {
        self.clock.set(Phase::After);
        tokio::time::sleep(CALM).await;
        self.clock.stop();
        let mut experiences = std::mem::take(&mut self.bystanders).into_iter();
        let sampler = self.sampler.take();
        let mut next = || experiences.next().and_then(|thread| thread.join().ok());
        let (elsewhere, beside, control) = (next(), next(), next());
        let usages = sampler.and_then(|thread| thread.join().ok());
        let (Some(elsewhere), Some(beside), Some(control), Some(usages)) =
            (elsewhere, beside, control, usages)
        else {
            return Err(anyhow!("a thread that measures failed"));
        };
        Ok(Measured { elsewhere, beside, control, usages })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.clock.stop();
    }
}

/// Looks at a process again and again until the clock stops.
fn sample(id: u32, clock: &Clock) -> Usages {
    let mut usages = Usages::default();
    while let Some(phase) = clock.phase() {
        match Usage::of(id) {
            Some((now, peak)) => {
                usages.peak = usages.peak.max(peak);
                let usage = &mut usages.phases[phase as usize];
                *usage = if phase == Phase::During { usage.most(now) } else { now };
            }
            None => usages.ended = true,
        }
        std::thread::sleep(LOOK);
    }
    usages
}

impl Usage {
    /// What a process takes now, and the most memory that it ever took.
    fn of(id: u32) -> Option<(Self, u64)> {
        let status = format!("/proc/{id}/status");
        let memory = process::memory(id).ok()?;
        let peak: u64 = field(&status, "VmHWM")?.trim_end_matches(" kB").parse().ok()?;
        let threads = field(&status, "Threads")?.parse().ok()?;
        let descriptors = process::descriptors(id).ok()?;
        Some((Self { memory, descriptors, threads }, peak << 10))
    }

    fn most(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}
