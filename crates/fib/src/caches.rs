//! The sizes of this machine's caches, by which the automatic choice selects an engine.
//!
//! A lookup that stays in the second-level cache takes a few nanoseconds; one that leaves it
//! waits for a cache shared by all cores, or for memory. Linux exports the sizes under
//! `/sys/devices/system/cpu/cpu0/cache/`, one folder a cache. Where there are none,
//! [`Caches::MODEST`] applies: too small a value costs a little speed, too large a one a lot.

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
    /// The caches of a small server, assumed where the kernel exports no sizes.
    pub const MODEST: Self = Self { first: 32 << 10, second: 1 << 20, last: 16 << 20 };

    /// Returns the sizes that the kernel exports; they are read once.
    pub fn of_this_machine() -> Self {
        #[cfg(feature = "std")]
        {
            static CACHES: std::sync::OnceLock<Caches> = std::sync::OnceLock::new();
            let folder = std::path::Path::new("/sys/devices/system/cpu/cpu0/cache");
            *CACHES.get_or_init(|| Self::read(folder))
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

/// Parses a size as the kernel writes it: `48K`, `2M` or plain bytes.
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
    fn caches_are_read_from_the_kernels_folders_and_default_without_them() {
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
    fn size_is_parsed_with_and_without_a_unit() {
        assert_eq!(size("48K"), Some(48 << 10));
        assert_eq!(size("480M"), Some(480 << 20));
        assert_eq!(size("64"), Some(64));
        assert_eq!(size("K"), None);
        assert_eq!(size(""), None);
    }
}
