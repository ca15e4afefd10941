//! What the slab allocator gains beside the program's allocator: nanoseconds a dependent read, and a release with the
//! allocation behind it, at a million pieces of the sizes of the directory.
//!
//! Rounds of both in turn, ratios of their medians. Ends with an error if reads take more than 0.9 of the time: the
//! crate has no reason to exist then (`docs/adr/0034`). `cargo bench -p mqttcore-benches --bench slab`

#![expect(clippy::print_stdout, reason = "figures go to whoever runs it")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::process::ExitCode;
use std::ptr::NonNull;
use std::time::Instant;

use mqttcore_benches::workload::Random;

const PIECES: usize = 1_000_000;
const ROUNDS: usize = 9;
/// Bytes of a leaf, a small map, an entry, a map and a small set.
const SIZES: [usize; 5] = [48, 64, 80, 144, 96];
/// Reads may take at most this part of the time of the other allocator.
const GOAL: f64 = 0.9;

type Piece = NonNull<u8>;

/// An allocator of pieces.
struct Allocator {
    name: &'static str,
    allocate: fn(usize) -> Piece,
    release: unsafe fn(Piece, usize),
}

const SLAB: Allocator = Allocator {
    name: "slab",
    allocate: mqttcore_slab::allocate,
    release: mqttcore_slab::release,
};

const GENERAL: Allocator = Allocator {
    name: "general",
    allocate: general,
    release: release_general,
};

fn layout(bytes: usize) -> Layout {
    // INVARIANT: pieces are small.
    Layout::from_size_align(bytes, mqttcore_slab::ALIGNMENT).expect("a small layout")
}

fn general(bytes: usize) -> Piece {
    // SAFETY: no size is 0.
    let piece = unsafe { alloc(layout(bytes)) };
    NonNull::new(piece).unwrap_or_else(|| handle_alloc_error(layout(bytes)))
}

/// # Safety
///
/// The piece came from [`general`] with the same size, and nobody uses it any more.
unsafe fn release_general(piece: Piece, bytes: usize) {
    // SAFETY: the caller's contract.
    unsafe { dealloc(piece.as_ptr(), layout(bytes)) };
}

/// Pieces of which each holds the address of the next, in random order.
struct Ring {
    allocator: Allocator,
    pieces: Vec<Piece>,
}

impl Ring {
    fn new(allocator: Allocator) -> Self {
        let size = |number: usize| SIZES[number % SIZES.len()];
        let pieces = (0..PIECES).map(|number| (allocator.allocate)(size(number)));
        let mut made = Self {
            pieces: pieces.collect(),
            allocator,
        };
        made.join(&mut Random::new(7));
        made
    }

    /// Writes the address of the next piece into each.
    fn join(&mut self, random: &mut Random) {
        let mut order: Vec<usize> = (0..PIECES).collect();
        random.shuffle(&mut order);
        for (place, number) in order.iter().enumerate() {
            let next = self.pieces[order[(place + 1) % PIECES]];
            // SAFETY: a piece is larger than an address, aligned for one, and ours.
            unsafe { self.pieces[*number].cast::<Piece>().write(next) };
        }
    }

    /// Nanoseconds a read that waits for the one before.
    fn read(&self) -> f64 {
        let start = Instant::now();
        let mut piece = self.pieces[0];
        for _ in 0..PIECES {
            // SAFETY: `join` wrote an address of ours into each piece.
            piece = unsafe { piece.cast::<Piece>().read() };
        }
        std::hint::black_box(piece);
        nanoseconds(start)
    }

    /// Nanoseconds a release and an allocation of the same size. The ring is joined anew.
    fn replace(&mut self) -> f64 {
        let mut random = Random::new(11);
        let start = Instant::now();
        for _ in 0..PIECES {
            let number = usize::try_from(random.below(PIECES as u64)).unwrap_or(0);
            let (piece, bytes) = (self.pieces[number], SIZES[number % SIZES.len()]);
            // SAFETY: allocated with this size, and replaced below.
            unsafe { (self.allocator.release)(piece, bytes) };
            self.pieces[number] = (self.allocator.allocate)(bytes);
        }
        let passed = nanoseconds(start);
        self.join(&mut random);
        passed
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures of a report")]
fn nanoseconds(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64 / PIECES as f64
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() -> ExitCode {
    let mut rings = [Ring::new(SLAB), Ring::new(GENERAL)];
    let mut figures = [[[0.0; ROUNDS]; 2]; 2];
    for round in 0..ROUNDS {
        for (ring, [reads, replacements]) in rings.iter_mut().zip(&mut figures) {
            reads[round] = ring.read();
            replacements[round] = ring.replace();
        }
    }
    let [slab, general] = figures
        .map(|[mut reads, mut replacements]| [median(&mut reads), median(&mut replacements)]);
    for (ring, [read, replacement]) in rings.iter().zip([slab, general]) {
        let name = ring.allocator.name;
        println!("{name:<8} read {read:6.1} ns   release and allocate {replacement:6.1} ns");
    }
    let (read, replacement) = (slab[0] / general[0], slab[1] / general[1]);
    println!("ratio    read {read:6.2}      release and allocate {replacement:6.2}");
    ExitCode::from(u8::from(read > GOAL))
}
