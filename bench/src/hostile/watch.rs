//! Measures a server and bystanders before, during and after an attack.

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

/// How long the phases before and after the attack last: long enough that a few busy seconds of the machine do not change
/// the baseline.
const CALM: Duration = Duration::from_secs(30);

/// The interval at which the server's process is sampled.
const LOOK: Duration = Duration::from_millis(25);

/// A measurement in progress: the bystanders, and the sampler of the server's process.
pub(super) struct Watch {
    clock: Arc<Clock>,
    bystanders: Vec<JoinHandle<Experiences>>,
    sampler: Option<JoinHandle<Usages>>,
}

/// The resources that a process uses.
#[derive(Clone, Copy, Default)]
pub(super) struct Usage {
    /// Resident memory in bytes.
    pub(super) memory: u64,
    pub(super) descriptors: usize,
    pub(super) threads: usize,
}

/// The resources that a process used in each phase.
#[derive(Default)]
pub(super) struct Usages {
    /// At the end of the first and the last phase, and the maximum in the others; `None` if the attack has no such phase.
    pub(super) phases: [Option<Usage>; Phase::ALL.len()],
    /// The peak of the resident memory as the kernel counts it, in bytes.
    pub(super) peak: u64,
    /// Whether the process ended unexpectedly.
    pub(super) ended: bool,
}

/// What was measured around one attack.
pub(super) struct Measured {
    /// Of the bystander with another address than the attacker.
    pub(super) elsewhere: Experiences,
    /// Of the bystander with the attacker's address.
    pub(super) beside: Experiences,
    /// Of the bystander that reads from the server that is not attacked.
    pub(super) control: Experiences,
    pub(super) usages: Usages,
}

/// The p99 of the bystander with another address during the attack, as multiples of the p99 without an attack. Of an
/// attack that holds what it has got, the p99 while it holds it.
#[derive(Clone, Copy)]
pub(super) struct Slowdown {
    /// Of the p99 of the same bystander before the attack.
    pub(super) of_before: f64,
    /// Of the p99 of the control at the same time. It is slower than before if the attacker takes processor time from
    /// every server on the machine, not only from the attacked one.
    pub(super) of_control: f64,
}

impl Slowdown {
    /// The multiple of the larger of the two p99 without an attack.
    pub(super) fn smaller(self) -> f64 {
        self.of_before.min(self.of_control)
    }
}

impl Measured {
    /// How much the attack slowed down the bystander with another address; `None` if a phase has no samples.
    pub(super) fn slowdown(&self) -> Option<Slowdown> {
        let p99 = |experiences: &Experiences, phase: Phase| experiences[phase as usize].percentile(0.99);
        let judged = match p99(&self.elsewhere, Phase::Held) {
            Some(_) => Phase::Held,
            None => Phase::During,
        };
        let attacked = p99(&self.elsewhere, judged)?;
        Some(Slowdown {
            of_before: attacked / p99(&self.elsewhere, Phase::Before)?,
            of_control: attacked / p99(&self.control, judged)?,
        })
    }

    /// How many requests of the bystander with another address failed.
    pub(super) fn errors(&self) -> usize {
        self.elsewhere.iter().map(|experience: &Experience| experience.errors).sum()
    }
}

impl Watch {
    /// Starts to measure, and waits for the phase before the attack. When this returns, the phase of the attack begins.
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

    /// Begins the phase in which the attacker holds what it has got.
    pub(super) fn hold(&self) {
        self.clock.set(Phase::Held);
    }

    /// Ends the phase of the attack, waits for the phase after it, and returns the measurements.
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

/// Samples a process until the clock stops.
fn sample(id: u32, clock: &Clock) -> Usages {
    let mut usages = Usages::default();
    while let Some(phase) = clock.phase() {
        match Usage::of(id) {
            Some((now, peak)) => {
                usages.peak = usages.peak.max(peak);
                let usage = &mut usages.phases[phase as usize];
                *usage = Some(match phase {
                    Phase::Before | Phase::After => now,
                    Phase::During | Phase::Held => usage.map_or(now, |usage| usage.most(now)),
                });
            }
            None => usages.ended = true,
        }
        std::thread::sleep(LOOK);
    }
    usages
}

impl Usage {
    /// The current resources of a process, and its peak memory in bytes; `None` if it has ended.
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
