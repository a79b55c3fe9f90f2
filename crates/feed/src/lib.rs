//! Where routes come from: text tables, MRT files, a generator.
