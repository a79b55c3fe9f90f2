//! How large the caches of this machine are: what an automatic choice goes by.
//!
//! A lookup that stays in the second-level cache takes a few nanoseconds; one that
//! leaves it waits for a cache shared with all cores, or for memory. Linux tells the
//! sizes under `/sys/devices/system/cpu/cpu0/cache/`, one folder a cache. Where
//! nothing is told, a modest server is assumed: too small a guess costs a little
//! speed, too large a one a lot.

/// The bytes of the caches that one core sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First-level data cache.
    pub first: usize,
    /// Second-level cache, normally a core's own.
    pub second: usize,
    /// Last-level cache, normally shared; 0 if there is none.
    pub last: usize,
}

impl Caches {
    /// What is assumed where the machine tells nothing.
    pub const MODEST: Self = Self { first: 32 << 10, second: 1 << 20, last: 16 << 20 };

    /// Asks the kernel.
    pub fn of_this_machine() -> Self {
        #[cfg(feature = "std")]
        {
            Self::read(std::path::Path::new("/sys/devices/system/cpu/cpu0/cache"))
        }
        #[cfg(not(feature = "std"))]
        {
            Self::MODEST
        }
    }

    #[cfg(feature = "std")]
    fn read(folder: &std::path::Path) -> Self {
        let mut caches = Self::MODEST;
        let Ok(entries) = std::fs::read_dir(folder) else { return caches };
        let mut deepest = 0;
        for entry in entries.flatten() {
            let text = |name| std::fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            let Some(size) = size(text("size").trim()) else { continue };
            let Ok(level) = text("level").trim().parse::<u32>() else { continue };
            match (level, text("type").trim()) {
                (_, "Instruction") => continue,
                (1, _) => caches.first = size,
                (2, _) => caches.second = size,
                _ => {}
            }
            if level >= deepest {
                deepest = level;
                caches.last = if level > 2 { size } else { 0 };
            }
        }
        caches
    }
}

/// Reads a size as the kernel writes it: `48K`, `2M` or plain bytes.
#[cfg(feature = "std")]
fn size(text: &str) -> Option<usize> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 1 << 10),
        b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::{Caches, size};
    use std::fs::{create_dir_all, write};

    #[test]
    fn the_kernels_folders_are_read_and_their_absence_is_not_fatal() {
        let folder = std::env::temp_dir().join(std::format!("caches-{}", std::process::id()));
        assert_eq!(Caches::read(&folder), Caches::MODEST);
        let caches = [("Data", "1", "48K"), ("Instruction", "1", "32K"), ("Unified", "2", "2048K")];
        for (i, (kind, level, size)) in caches.iter().enumerate() {
            let index = folder.join(std::format!("index{i}"));
            create_dir_all(&index).unwrap();
            for (name, text) in [("type", kind), ("level", level), ("size", size)] {
                write(index.join(name), std::format!("{text}\n")).unwrap();
            }
        }
        let read = Caches::read(&folder);
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, Caches { first: 48 << 10, second: 2 << 20, last: 0 });
    }

    #[test]
    fn sizes() {
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("480M"), Some(480 << 20));
        assert_eq!(size("64"), Some(64));
        assert_eq!(size("K"), None);
        assert_eq!(size(""), None);
    }
}
