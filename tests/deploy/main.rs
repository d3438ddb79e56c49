//! The functions as they are deployed: their binaries under the Lambda emulator, the template, the page in a browser.

mod backlog;
mod cascade;
mod deployment;
mod enable_ttl;
mod functions;
mod html;
mod local_run;
