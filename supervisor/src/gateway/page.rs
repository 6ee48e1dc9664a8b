//! The page at `/`: three files in this binary, served without a token, since they hold nothing of the pool. What the
//! page shows comes by the other paths, under their rules.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Every file: its path, its type and its text.
const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page/page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page/page.css")),
    ("/page.js", "text/javascript; charset=utf-8", SCRIPT),
];
/// One script for the browser, in parts for people.
const SCRIPT: &str = concat!(
    include_str!("page/base.js"),
    include_str!("page/charts.js"),
    include_str!("page/pool.js"),
    include_str!("page/grids.js"),
    include_str!("page/verdicts.js"),
    include_str!("page/live.js"),
);
/// What the browser lets the page do: run this script, use this style sheet, ask this server. Nothing is inline, no
/// other page may show it in a frame, and no text becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";
/// The headers of every file.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    // Another version of the pool has other files.
    (header::CACHE_CONTROL, "no-store"),
];

/// Whether a path is one of the files, which need no token.
pub(super) fn has(path: &str) -> bool {
    FILES.iter().any(|&(own, ..)| own == path)
}

/// The paths of the files, for tests.
#[cfg(test)]
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|&(path, ..)| path)
}

/// The routes of the files.
pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, &(path, kind, text)| {
        router.route(path, get(move || async move { file(kind, text) }))
    })
}

fn file(kind: &'static str, text: &'static str) -> Response {
    let mut response = text.into_response();
    for (name, value) in HEADERS.into_iter().chain([(header::CONTENT_TYPE, kind)]) {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_its_own_files_alone_and_has_no_code_in_its_markup() {
        let [(_, _, html), (_, _, css), (_, _, script)] = FILES;
        let named: Vec<_> = ["href=\"", "src=\""]
            .iter()
            .flat_map(|attribute| {
                html.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
            })
            .filter(|to| !to.starts_with('#'))
            .collect();
        assert_eq!(named, ["data:,", "page.css", "page.js"]);
        for inline in [" style=", " onclick=", "javascript:", "<style", "http://", "https://"] {
            assert!(!html.contains(inline), "{inline}");
        }
        assert!(!css.contains("url(") && !css.contains("@import"));
        for sink in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "localStorage",
        ] {
            assert!(!script.contains(sink), "{sink}");
        }
    }

    #[test]
    fn no_part_of_the_script_takes_the_name_of_another_ones_function() {
        let named = SCRIPT.lines().filter_map(|line| {
            let line = line.strip_prefix("async ").unwrap_or(line);
            line.strip_prefix("function ")?.split('(').next()
        });
        let mut names: Vec<_> = named.collect();
        assert!(names.len() > 40, "{names:?}");
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|two| two[0] == two[1]).collect();
        // The browser takes the last of them without a word.
        assert_eq!(twice, <Vec<&[&str]>>::new());
    }

    #[test]
    fn its_files_are_small_and_their_lines_short() {
        for (path, _, text) in FILES {
            let wide = text.lines().find(|line| line.chars().count() > 120);
            assert_eq!(wide, None, "{path}");
            assert!(text.len() < 64 << 10, "{path}: {} bytes", text.len());
        }
    }
}
