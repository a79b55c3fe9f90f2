//! The reload class of each key, and the differences of two configurations.
//!
//! A reload applies the changed keys of a configuration file to a running router. The class of a
//! key states how.
//!
//! The comparison destructures the configuration exhaustively: a new field does not pass
//! `cargo xtask check` before its class is stated, because a missing field is an error of the
//! compiler, and an unused variable is an error of the check.

use port::af_xdp::QueueSetup;

use super::{Config, ImageFile, Interface};

/// The effect of a reload on a changed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadClass {
    /// The running workers use the new value.
    Live,
    /// New workers, which use the new value, replace the running ones.
    ReplacesWorkers,
    /// The reload fails: only a restart changes the value.
    NeedsRestart,
}

/// The keys whose values differ, with their classes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedKeys(Vec<(&'static str, ReloadClass)>);

impl ChangedKeys {
    /// Adds a key if its value differs.
    pub fn compare<T: PartialEq>(
        &mut self,
        key: &'static str,
        class: ReloadClass,
        old: &T,
        new: &T,
    ) {
        if old != new && !self.0.iter().any(|(known, _)| *known == key) {
            self.0.push((key, class));
        }
    }

    /// Returns the keys of a class, in the order of the comparison.
    pub fn of(&self, class: ReloadClass) -> Vec<&'static str> {
        self.0.iter().filter(|(_, own)| *own == class).map(|(key, _)| *key).collect()
    }

    /// Returns the keys that only a restart changes in a daemon that does not replace its workers,
    /// as a gate and a grantor, in the order of the comparison.
    pub fn not_live(&self) -> Vec<&'static str> {
        let not_live = self.0.iter().filter(|(_, class)| *class != ReloadClass::Live);
        not_live.map(|(key, _)| *key).collect()
    }
}

/// Returns the message of a refused reload: a daemon of this role cannot change the keys.
pub fn restart_message(keys: &[&str], role: &str) -> String {
    format!(
        "{} cannot be changed while the {role} runs: restart the {role}, or restore the old value",
        keys.join(", ")
    )
}

impl Config {
    /// Compares the keys with those of another configuration. The key `interface` represents added
    /// and removed interfaces.
    pub fn changed_keys(&self, new: &Self) -> ChangedKeys {
        use ReloadClass::{Live, NeedsRestart, ReplacesWorkers};
        let Self {
            path: _,
            interfaces,
            next_hops,
            files,
            routes_v4,
            routes_v6,
            access_lists,
            egress_queues,
            block,
            flowspec,
            engine_v4,
            engine_v6,
            fpm,
            image,
            daemon,
        } = self;
        let mut changed = ChangedKeys::default();
        let names = |of: &[Interface]| -> Vec<String> {
            of.iter().map(|interface| interface.name.clone()).collect()
        };
        changed.compare("interface", ReplacesWorkers, &names(interfaces), &names(&new.interfaces));
        for old in interfaces {
            if let Some(new) = new.interfaces.iter().find(|new| new.name == old.name) {
                old.compare(new, &mut changed);
            }
        }
        // A router that follows the kernel refuses these.
        changed.compare("nexthop", Live, next_hops, &new.next_hops);
        changed.compare("routes", Live, files, &new.files);
        changed.compare("route", Live, routes_v4, &new.routes_v4);
        changed.compare("route", Live, routes_v6, &new.routes_v6);
        changed.compare("access_list", Live, access_lists, &new.access_lists);
        changed.compare("egress_queue", ReplacesWorkers, egress_queues, &new.egress_queues);
        changed.compare("block", Live, block, &new.block);
        changed.compare("flowspec", Live, flowspec, &new.flowspec);
        daemon.compare(&new.daemon, &mut changed);
        changed.compare("fib.engine", ReplacesWorkers, engine_v4, &new.engine_v4);
        changed.compare("fib.engine_v6", ReplacesWorkers, engine_v6, &new.engine_v6);
        changed.compare("feed.fpm", NeedsRestart, fpm, &new.fpm);
        let split = |image: &Option<ImageFile>| {
            image.clone().map(|ImageFile { path, every }| (path, every)).unzip()
        };
        let ((old_path, old_every), (new_path, new_every)) = (split(image), split(&new.image));
        changed.compare("image.path", NeedsRestart, &old_path, &new_path);
        changed.compare("image.interval", Live, &old_every, &new_every);
        changed
    }
}

impl Interface {
    /// Compares the keys of an interface that both configurations have.
    fn compare(&self, new: &Self, changed: &mut ChangedKeys) {
        use ReloadClass::{Live, ReplacesWorkers};
        // Whether long packets are the kernel's depends on the command, which a reload does not change.
        let Self {
            name: _,
            mode,
            queues,
            queue_setup: QueueSetup { channels, rss },
            table,
            sources,
            observe,
            follows_kernel: _,
            guard,
        } = self;
        changed.compare("interface.mode", ReplacesWorkers, mode, &new.mode);
        changed.compare("interface.queues", ReplacesWorkers, queues, &new.queues);
        let setup = &new.queue_setup;
        changed.compare("interface.channels", ReplacesWorkers, channels, &setup.channels);
        changed.compare("interface.rss", ReplacesWorkers, rss, &setup.rss);
        changed.compare("interface.table", ReplacesWorkers, table, &new.table);
        changed.compare("interface.rpf", Live, sources, &new.sources);
        changed.compare("interface.observe", Live, observe, &new.observe);
        // Derived from keys of a gate's configuration, which has a comparison of its own.
        changed.compare("front", ReplacesWorkers, guard, &new.guard);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = "[[interface]]\nname = 'a'\n[image]\npath = '/tmp/x'\n";

    fn changed(text: &str) -> ChangedKeys {
        let parse = |text| Config::parse(text, Path::new("run.toml")).unwrap();
        parse(FILE).changed_keys(&parse(text))
    }

    #[test]
    fn changed_key_has_its_class() {
        use ReloadClass::{Live, NeedsRestart, ReplacesWorkers};
        let in_interface = |line| FILE.replace("'a'\n", &format!("'a'\n{line}\n"));
        let in_image = |line| format!("{FILE}{line}\n");
        assert_eq!(changed(FILE), ChangedKeys::default());
        let list = "[[access_list]]\nname = 'a'\ndefault = 'deny'\n";
        for (text, class, key) in [
            (format!("{FILE}{list}"), Live, "access_list"),
            (format!("{FILE}[[egress_queue]]\ninterface = 'a'\n"), ReplacesWorkers, "egress_queue"),
            (in_interface("rpf = 'strict'"), Live, "interface.rpf"),
            (in_interface("observe = true"), Live, "interface.observe"),
            (in_interface("mode = 'generic'"), ReplacesWorkers, "interface.mode"),
            (in_interface("table = 7"), ReplacesWorkers, "interface.table"),
            (in_image("interval = '10s'"), Live, "image.interval"),
            (in_image("[workers]\ncores = [0]"), ReplacesWorkers, "workers.cores"),
            (in_image("[workers]\nstall_timeout = '2s'"), ReplacesWorkers, "workers.stall_timeout"),
            (in_image("[control]\nsocket = '/run/x'"), NeedsRestart, "control.socket"),
            (in_image("[metrics]\nlisten = '127.0.0.1:9'"), NeedsRestart, "metrics"),
            (in_image("[flowspec]\nas = 1\nrouter_id = '1.1.1.1'\ninbound = []"), Live, "flowspec"),
            (in_image("[block]\nlists = ['x']"), Live, "block"),
            (in_image("[log]\nlevel = 'warn'"), NeedsRestart, "log.level"),
            (FILE.replace("/tmp/x", "/tmp/y"), NeedsRestart, "image.path"),
            (format!("[[interface]]\nname = 'b'\n{FILE}"), ReplacesWorkers, "interface"),
        ] {
            let changed = changed(&text);
            assert_eq!(changed.0, [(key, class)], "{text}");
            assert_eq!(changed.of(class), [key]);
        }
    }
}
