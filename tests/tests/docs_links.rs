//! Links between the documents lead somewhere.

mod docs;

use std::{fs, path::Path};

use docs::root;

#[test]
fn relative_links_lead_to_files() {
    let mut broken = Vec::new();
    let mut links = 0;
    for folder in ["", "docs", "docs/design"] {
        let folder = root().join(folder);
        for path in markdown(&folder) {
            let text = fs::read_to_string(&path).unwrap();
            for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = target.split('#').next().unwrap_or_default();
                if file.is_empty() || file.contains("://") {
                    continue;
                }
                links += 1;
                if !folder.join(file).exists() {
                    broken.push(format!("{}: {target}", path.display()));
                }
            }
        }
    }
    assert!(links > 5, "the links have gone");
    assert!(broken.is_empty(), "{broken:#?}");
}

fn markdown(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect()
}
